"""The probes as commands: their JSON, their exit codes, and one line for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import command

PAIR = "     NPU4 NPU5 CPU Affinity\nNPU4 X    UB   0-23\nNPU5 UB   X    0-23\n"
GPU_PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-3\nGPU1\tSYS\t X \t0-3\n"
GPUS = "index, uuid, name, memory.used [MiB], memory.total [MiB]\n0, GPU-0b1c2d3e-0000, A100, 3 MiB, 81920 MiB\n"


def probe(name: str, text: str | bytes, tmp_path: Path, *more: str) -> CompletedProcess[str]:
    (tmp_path / "saved").write_bytes(text if isinstance(text, bytes) else text.encode())
    return command(f"scripts/rules/{name}.py", "--from-file", tmp_path / "saved", *more)


@pytest.mark.parametrize(
    ("text", "cards", "links", "domains"),
    [
        (PAIR, [4, 5], [["X", "UB"], ["UB", "X"]], [[4, 5]]),
        (GPU_PAIR, [0, 1], [["X", "SYS"], ["SYS", "X"]], [[0], [1]]),
    ],
)
def test_a_saved_matrix_of_either_vendor_is_printed(tmp_path: Path, text: str, cards, links, domains):
    done = probe("probe_topology", text, tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"schema": 1, "cards": cards, "links": links, "domains": domains}


def test_a_saved_listing_is_printed(tmp_path: Path):
    done = probe("probe_health", GPUS, tmp_path)
    card = {"id": 0, "npu": 0, "chip": 0, "name": "A100", "health": "OK", "hbm_used_mb": 3, "hbm_total_mb": 81920}
    assert json.loads(done.stdout) == {
        "schema": 1,
        "cards": [{**card, "processes": [], "state": "known", "reason": ""}],
        "notes": [],
    }


def test_out_writes_the_same_and_prints_nothing(tmp_path: Path):
    done = probe("probe_topology", PAIR, tmp_path, "--out", str(tmp_path / "topology.json"))
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "topology.json").read_text())["cards"] == [4, 5]


@pytest.mark.parametrize("name", ["probe_topology", "probe_health"])
@pytest.mark.parametrize("text", ["", "garbage", b"\x7fELF\x00\xff\xfe", PAIR[:40], "index, uuid, name\n"])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path: Path, name: str, text: str | bytes):
    done = probe(name, text, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{name}.py: {tmp_path}/saved")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(tmp_path: Path):
    done = command("scripts/rules/probe_health.py", "--from-file", tmp_path / "none")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be read (No such file or directory)" in done.stderr
