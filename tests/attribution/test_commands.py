"""The commands: tables on stdout, JSON in a file, exit codes 0, 1 (finding) and 2 (cannot analyse)."""

from __future__ import annotations

import errno
import gzip
import json
import runpy
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from anchormatrix.cli.command import run
from virtualhost.server.profiler import write_ascend
from virtualhost.truth.cases import build_case


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """Write a few cases' captures once."""
    root = tmp_path_factory.mktemp("captures")
    for name in ("unmasked", "masked", "leaked_transforms", "offload_gather", "alltoallv"):
        write_ascend(build_case(name)[0], root / name)
    return root


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a command in this process; return its exit code, stdout, stderr and the JSON it wrote."""

    def called(name: str, *arguments: object) -> tuple[int, str, str, dict]:
        written = tmp_path / "result.json"
        written.unlink(missing_ok=True)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments), "--json", str(written)])
        with pytest.raises(SystemExit) as left:
            run(runpy.run_path(str(ROOT / "scripts" / f"{name}.py"))["main"])
        said = capsys.readouterr()
        return left.value.code, said.out, said.err, json.loads(written.read_text()) if written.exists() else {}

    return called


ROOT = Path(__file__).resolve().parents[2]
FAMILY_KEYS = {
    *("family", "communicator", "calls", "calls_per_layer", "sum_ms", "mean_ms", "median_ms", "max_ms"),
    *("exposed_ms", "outside_calls", "outside_ms"),
    *("union_ms", "union_over_sum"),
}


def test_collectives(command, captures):
    code, out, _, values = command("collective_attribution", "--profile-dir", captures / "masked", "--layers", 6)
    assert (code, values["schema"]) == (0, 1)
    assert [rank["rank"] for rank in values["ranks"]] == [0, 1, 2, 3]
    first = values["ranks"][0]
    assert set(first["families"][0]) == FAMILY_KEYS
    assert (first["families"][0]["family"], first["families"][0]["calls_per_layer"]) == ("alltoall", 12.0)
    assert set(first["overlap"][0]) == {"a", "b", "share"}
    assert set(first["streams"][0]) == {"stream", "core", "kernels", "total_ms"}
    assert values["rows_unusable"] == 0
    assert values["rows_read"] > 1000
    assert "alltoall" in out
    assert "Streams" in out


@pytest.mark.parametrize(("name", "kind"), [("offload_gather", "remainder"), ("leaked_transforms", "leaked_compute")])
def test_collectives_with_a_finding(command, captures, name, kind):
    code, out, _, values = command("collective_attribution", "--profile-dir", captures / name, "--layers", 6)
    assert code == 1
    assert {finding["kind"] for finding in values["findings"]} == {kind}
    assert f"finding ({kind})" in out


def test_the_masking_bound(command, captures):
    code, out, _, values = command(
        "mask_bound_calc",
        "--profile-dir",
        captures / "masked",
        "--layers",
        6,
        "--chunks",
        3,
        "--mask-family",
        "alltoall",
    )
    assert code == 0
    assert set(values["ranks"][0]) >= {
        *("rank", "chunks", "C_ms", "F_ms", "c_ms", "f_ms", "c_over_f", "ideal", "bound", "measured", "achievement"),
        *("exposed_ms", "warnings"),
    }
    assert values["ranks"][0]["chunks"] == 3
    assert values["step"] == 1
    assert "Masking bound per layer (step 1" in out


def test_a_masked_family_that_is_not_there_cannot_be_analysed(command, captures):
    code, _, err, values = command(
        "mask_bound_calc", "--profile-dir", captures / "masked", "--mask-family", "allReduce"
    )
    assert (code, values) == (2, {})
    assert err.count("\n") == 1
    assert "expected one of: allGather:474, alltoall:445" in err


def test_bubbles(command, captures):
    code, out, _, values = command(
        "bubble_attribution", "--profile-dir", captures / "unmasked", "--layers", 6, "--group-split", 3
    )
    assert code == 0
    first = values["ranks"][0]
    assert [group["group"] for group in first["groups"]][:2] == ["alltoall:445 forward", "alltoall:445 reverse"]
    assert set(first["groups"][0]) == {
        *("group", "calls", "total_ms", "exposed_ms", "exposed_share", "overlap_attention_ms")
    }
    assert set(first["producer_lag_ms"]) == {"median", "within_100us_share"}
    assert "gap_released_ms" in out


def test_a_split_that_does_not_divide_is_a_finding(command, captures):
    code, out, _, values = command(
        "bubble_attribution", "--profile-dir", captures / "unmasked", "--layers", 7, "--group-split", 3
    )
    assert code == 1
    assert "24 calls do not divide by 7 layers" in out
    assert values["findings"][0]["ranks"] == [0, 1, 2, 3]


def test_the_difference_of_two_forms_closes(command, captures):
    code, out, _, values = command(
        "stage_delta", "--profile-dir", captures / "unmasked", "--profile-dir", captures / "masked"
    )
    assert code == 0
    delta = values["delta"]
    parts = sum(delta[f"{part}_ms"] for part in ("computing", "exposed", "free", "bubble", "residual"))
    assert delta["closes"]
    assert parts == pytest.approx(delta["stage_ms"], abs=1e-5)
    assert "Δ = B − A" in out


def test_a_difference_needs_two_captures(command, captures):
    code, _, err, _ = command("stage_delta", "--profile-dir", captures / "unmasked")
    assert code == 2
    assert "expected two" in err


def test_transport(command, tmp_path):
    _, truth = build_case("transport_placement")
    for rank, lines in truth["audit_logs"].items():
        (tmp_path / f"rank{rank}.log").write_text("\n".join(lines))
    code, out, _, values = command("a2a_reconcile", "--glob", tmp_path / "rank*.log")
    assert (code, values["ok"], values["legs"]["unequal"]) == (1, False, 2)
    assert "finding (placement): 2 legs, first call 5 chunk 2 0 → 3" in out
    assert command("a2a_reconcile", "--log", tmp_path / "rank0.log")[0] == 1  # the others' legs are missing


def test_transport_without_logs_or_lines_cannot_be_judged(command, tmp_path):
    (tmp_path / "empty.log").write_text("nothing\n")
    assert command("a2a_reconcile", "--log", tmp_path / "empty.log")[0] == 2
    assert command("a2a_reconcile", "--log", tmp_path / "gone.log")[0] == 2
    assert command("a2a_reconcile")[0] == 2
    assert command("a2a_reconcile", "--selftest")[0] == 0


def test_a_trace_for_perfetto(command, captures, tmp_path):
    out = tmp_path / "trace.json.gz"
    assert command("perfetto_export", "--profile-dir", captures / "masked", "--out", out)[0] == 0
    events = json.loads(gzip.decompress(out.read_bytes()), parse_float=str)["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"rank 0", "rank 1", "rank 2", "rank 3"}
    assert {"exposed communication", "nothing computes", "stream 16"} <= tracks
    assert any(track.startswith("communicator ") for track in tracks)
    assert min(float(event["ts"]) for event in events if event["ph"] == "X") == 0
    exposed = sum(
        round(float(event["dur"]) * 1000)
        for event in events
        if event["ph"] == "X" and event["pid"] == 0 and event["name"] == "exposed communication"
    )
    assert exposed == build_case("masked")[1]["ranks"][0]["step"]["exposed_ns"]


def test_a_trace_that_cannot_be_written_leaves_what_was_there(command, captures, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "trace.json", tmp_path):
        code, _, err, values = command("perfetto_export", "--profile-dir", captures / "masked", "--out", out)
        assert (code, values, err.count("\n")) == (2, {}, 1)
        assert "cannot be written" in err
    out = tmp_path / "trace.json"
    out.write_text("the old one")
    with monkeypatch.context() as patched:
        full = OSError(errno.ENOSPC, "No space left on device")
        patched.setattr("anchormatrix.attribution.perfetto.trace._write_kernels", Mock(side_effect=full))
        code, _, err, _ = command("perfetto_export", "--profile-dir", captures / "masked", "--out", out)
    assert code == 2
    assert "No space left on device" in err
    assert out.read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "trace.json"]
    assert command("perfetto_export", "--profile-dir", captures / "masked", "--out", out)[0] == 0
    assert json.loads(out.read_text())["displayTimeUnit"] == "ns"


def test_a_rank_that_a_trace_leaves_out_is_said(command, captures, tmp_path):
    shutil.copytree(captures / "masked", tmp_path / "capture")
    first, *_ = sorted((tmp_path / "capture").rglob("kernel_details.csv"))
    first.write_text(first.read_text().partition("\n")[0] + "\n")
    code, out, _, values = command(
        "perfetto_export", "--profile-dir", tmp_path / "capture", "--out", tmp_path / "trace.json"
    )
    assert (code, values["ranks"], values["findings"][0]["kind"]) == (1, [1, 2, 3], "empty_rank")
    assert "rank 0 is left out" in out
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2, 3}


def test_tables_of_steps_alone_are_no_trace(command, captures, tmp_path):
    table = next((captures / "masked").rglob("step_trace_time.csv"))
    code, _, err, _ = command("perfetto_export", "--profile-dir", table, "--out", tmp_path / "trace.json")
    assert code == 2
    assert "holds no kernels" in err
    assert not (tmp_path / "trace.json").exists()


def test_all_analyses_at_once(command, captures, tmp_path):
    out = tmp_path / "attribution.json"
    code, said, _, values = command(
        "attribute",
        *("--profile-dir", captures / "masked", "--out", out, "--form", "tp1-usp4+mask3", "--layers", 6),
        *("--unprofiled-step-s", "0.05", "--contract", "c4-abc"),
    )
    assert code == 0
    assert json.loads(out.read_text()) == values
    assert (values["status"], values["form"], values["contract"]) == ("analysed", "tp1-usp4+mask3", "c4-abc")
    assert "The slowest rank" in said
    assert values["effect"]["ok"]


def test_a_capture_that_cannot_be_analysed_says_so_in_the_result(command, tmp_path):
    code, _, err, values = command("attribute", "--profile-dir", tmp_path, "--out", tmp_path / "attribution.json")
    assert (code, values["status"]) == (2, "refused")
    assert "holds no profiler output" in values["reason"]
    assert "holds no profiler output" in err


@pytest.mark.parametrize(
    "name", ["collective_attribution", "mask_bound_calc", "bubble_attribution", "perfetto_export", "attribute"]
)
def test_a_missing_directory_is_one_line_and_exit_code_2(command, tmp_path, name):
    out = ["--out", tmp_path / "x.json"] if name in ("perfetto_export", "attribute") else []
    code, _, err, _ = command(name, "--profile-dir", tmp_path / "gone", *out)
    assert code == 2
    assert err.count("\n") == 1
    assert "no such file or directory" in err


def test_a_difference_names_what_the_files_themselves_say(command, tmp_path):
    """A rank of which nothing was captured is told beside the difference too, and refused where all are asked for."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
        (tmp_path / name / "rank0.json").write_text(json.dumps({"traceEvents": [event]}))
    (tmp_path / "b" / "rank1.json").write_text('{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 0}]}')
    code, _, _, values = command("stage_delta", "--profile-dir", tmp_path / "a", "--profile-dir", tmp_path / "b")
    assert code == 1
    assert [(found["kind"], found["ranks"]) for found in values["findings"]] == [("empty_rank", [1])]
    each = ("--profile-dir", tmp_path / "a", "--profile-dir", tmp_path / "b", "--every-rank")
    code, _, err, _ = command("stage_delta", *each)
    assert code == 2
    assert "rank1.json: holds no kernel and no operator" in err
