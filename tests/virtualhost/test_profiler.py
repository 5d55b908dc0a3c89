"""The virtual host's profiler files, the truth reckoned from the same timeline, and its transport audit logs."""

from __future__ import annotations

import csv
import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from anchormatrix.captures.cutting.cut import cut
from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.open import load_capture
from virtualhost.host.model import DiT
from virtualhost.host.scenario import Scenario, Serving
from virtualhost.host.split import Split
from virtualhost.server.chrome import write_kineto
from virtualhost.server.exchange import parse_split
from virtualhost.server.pipelines import Options
from virtualhost.server.profiler import (
    EPOCH_NS,
    STYLES,
    AscendStyle,
    collective_name,
    write_ascend,
    write_session_capture,
)
from virtualhost.server.serving import ServingSession
from virtualhost.step.steptable import captured, step_figures, without
from virtualhost.truth.audit import FAULTS, audit
from virtualhost.truth.brute_force import COMPUTE_CORES, common, measure, sweep, union
from virtualhost.truth.cases import CASES, build_case

QUAD = (0, 1, 2, 3)


def table(folder: Path, name: str = "kernel_details.csv") -> list[dict[str, str]]:
    with (folder / "ASCEND_PROFILER_OUTPUT" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def nanoseconds(text: str) -> int:
    value = Decimal(text.strip()) * 1000
    assert value == int(value)
    return int(value)


def test_union_intersection_and_difference() -> None:
    assert union([(0, 4), (2, 6)], [(8, 9)]) == [(0, 6), (8, 9)]
    assert common([(0, 4), (6, 9)], [(3, 7)]) == [(3, 4), (6, 7)]
    assert sweep([[(0, 9)], [(2, 3)]], lambda inside: inside[0] and not inside[1]) == [(0, 2), (3, 9)]
    assert without([(0, 4), (6, 9)], [(1, 2), (3, 7)]) == [(0, 1), (2, 3), (7, 9)]
    assert measure(union([(5, 5)])) == 0


@pytest.mark.parametrize("name", CASES)
def test_the_step_table_agrees_with_brute_force_on_every_rank(name: str) -> None:
    timeline, truth = build_case(name)
    for rank in timeline.ranks:
        figures = step_figures(timeline, rank)
        assert figures._asdict() == truth["ranks"][rank]["step"]
        assert figures.communication_ns == figures.exposed_ns + figures.overlapped_ns
        assert figures.stage_ns == figures.computing_ns + figures.exposed_ns + figures.free_ns
        assert figures.free_ns >= 0
    json.dumps(truth)


def test_each_case_shows_what_it_is_named_for() -> None:
    truths = {name: build_case(name)[1]["ranks"][0] for name in CASES}

    def calls(case: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in truths[case]["families"]:
            found[one["family"]] = found.get(one["family"], 0) + one["calls"]
        return found

    def parts(case: str) -> dict[str, dict[str, int]]:
        return {one["part"]: one for one in truths[case]["bubbles"]["groups"]}

    assert truths["unmasked"]["step"]["overlapped_ns"] == 0 < truths["masked"]["step"]["overlapped_ns"]
    assert calls("masked")["alltoall"] == 3 * calls("unmasked")["alltoall"]
    reverse = parts("reverse_exposed")["reverse"]
    assert (reverse["exposed_ns"], reverse["overlap_attention_ns"]) == (reverse["total_ns"], 0)
    assert parts("masked")["reverse"]["overlap_attention_ns"] > 0
    assert any(one["share"] > 0.2 for one in truths["two_communicators"]["overlap"])
    assert [one["remainder"] for one in truths["offload_gather"]["families"]] == [5, 1]
    side = [one for one in truths["leaked_transforms"]["streams"] if one["stream"] == "usp"]
    assert [(one["core"], one["kernels"]) for one in side] == [("AI_VECTOR_CORE", 18), ("HCCL", 72)]
    assert "alltoall" not in calls("alltoallv")
    assert calls("tensor_parallel") == {"allReduce": 18}
    assert calls("ring")["batchSendRecv"] == 3 * 6
    assert calls("inactive_ulysses") == {"allGather": 1}
    assert calls("pipeline")["send"] == 2
    exposed = [rank["step"]["exposed_ns"] for rank in build_case("straggler")[1]["ranks"]]
    assert min(exposed) == exposed[2]


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_the_kernel_table_holds_every_kernel_exactly(style: AscendStyle, tmp_path: Path) -> None:
    timeline, _ = build_case("masked")
    folders = write_ascend(timeline, tmp_path, style=style)
    assert [folder.name for folder in folders] == [f"vllm-omni_rank{rank}_ascend_pt" for rank in range(4)]
    for rank, folder in enumerate(folders):
        rows, kernels = table(folder), timeline.kernels(rank)
        assert all(None not in row and None not in row.values() for row in rows)
        assert len(rows) == len(kernels)
        for row, kernel in zip(rows, kernels, strict=True):
            assert nanoseconds(row["Start Time(us)"]) == EPOCH_NS + kernel.start_ns
            assert nanoseconds(row["Duration(us)"]) == kernel.dur_ns
            assert (row["Accelerator Core"] in COMPUTE_CORES) == (kernel.op.core in COMPUTE_CORES)
            if kernel.op.family:
                assert row["Accelerator Core"] == style.collectives
                assert (row["Stream ID"] == "N/A") == (style.collectives != "AI_CPU")
                assert re.fullmatch(r"hcom_(alltoall|allGather)_(AicpuKernel)?_\d+_\d+_1", row["Name"])


@pytest.mark.parametrize(
    ("style", "head", "block"),
    [("910b", "Step Id", "Block Dim"), ("a3", "Device_id", "Block Dim"), ("950", "Step Id", "Block Num")],
)
def test_header_variants(style: str, head: str, block: str) -> None:
    columns = STYLES[style].header.split(",")
    assert columns[0] == head
    assert block in columns
    assert ("OP State" in columns) == (style != "910b")
    assert STYLES["plain"].header.startswith("Model ID,Task ID")


def test_timestamps_are_quoted_with_a_tab_as_in_real_files(tmp_path: Path) -> None:
    folder = write_ascend(build_case("unmasked")[0], tmp_path)[0]
    text = (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").read_text()
    assert ',"1736413971558972.912\t",' in text.splitlines()[1]


def test_collective_names() -> None:
    assert collective_name("alltoall", 445, 12, 1) == "hcom_alltoall__445_12_1"
    assert collective_name("allReduce", 503, 96, 4) == "hcom_allReduce__503_96_4"
    assert collective_name("allGather", 527, 0, 1, aicpu=True) == "hcom_allGather_AicpuKernel_527_0_1"


@pytest.mark.parametrize("name", ["masked", "layerwise_offload", "pipeline"])
def test_step_and_communication_tables_come_from_the_same_step(name: str, tmp_path: Path) -> None:
    timeline = captured(build_case(name)[0], 1.3)
    for rank, folder in enumerate(write_ascend(timeline, tmp_path, step=7)):
        (row,) = table(folder, "step_trace_time.csv")
        figures = step_figures(timeline, rank)
        assert row["Step"] == "7"
        assert nanoseconds(row["Communication(Not Overlapped)"]) == figures.exposed_ns
        assert nanoseconds(row["Stage"]) == figures.stage_ns
        rows = table(folder)
        assert not any(row["Name"] == "MEMCPY_ASYNC" for row in rows)
        listed = [row["Name"] for row in rows if row["Accelerator Core"] == "HCCL"]
        calls = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text())["step7"]
        named = [key.split("@")[0] for kind in ("p2p", "collective") for key in calls[kind]]
        assert sorted(named) == sorted(listed)
        for call in (*calls["p2p"].values(), *calls["collective"].values()):
            times = call["Communication Time Info"]
            assert times["Elapse Time(ms)"] == pytest.approx(times["Transit Time(ms)"] + times["Wait Time(ms)"])


def test_clocks_of_ranks_can_be_apart(tmp_path: Path) -> None:
    style = AscendStyle(skew_ns=(0, 5_000))
    first, second, *_ = write_ascend(build_case("unmasked")[0], tmp_path, style=style)
    starts = [nanoseconds(table(folder)[0]["Start Time(us)"]) for folder in (first, second)]
    assert starts == [EPOCH_NS, EPOCH_NS + 5_000]


def test_a_gpu_trace_holds_kernels_copies_and_the_step(tmp_path: Path) -> None:
    timeline, _ = build_case("layerwise_offload")
    paths = write_kineto(timeline, tmp_path)
    trace = json.loads(gzip.decompress(paths[1].read_bytes()), parse_float=Decimal)
    assert trace["distributedInfo"] == {"backend": "nccl", "rank": 1, "world_size": 4}
    events = trace["traceEvents"]
    (step,) = [event for event in events if event["cat"] == "user_annotation"]
    assert step["name"] == "ProfilerStep#1"
    assert nanoseconds(str(step["dur"])) == timeline.stage_ns[1]
    kernels = [kernel for kernel in timeline.kernels(1) if kernel.op.core != "AI_CPU"]
    assert [(nanoseconds(str(e["ts"])), nanoseconds(str(e["dur"]))) for e in events if e is not step] == [
        (EPOCH_NS + kernel.start_ns, kernel.dur_ns) for kernel in kernels
    ]
    assert sum(event["cat"] == "gpu_memcpy" for event in events) == 5
    collectives = [event for event in events if event["name"].startswith("ncclDevKernel")]
    assert {event["args"]["Collective name"] for event in collectives} == {"all_to_all", "_allgather_base"}


def test_a_cpu_trace_holds_operators_and_gloo_calls(tmp_path: Path) -> None:
    timeline, _ = build_case("tensor_and_ulysses")
    path = write_kineto(timeline, tmp_path, backend="gloo", compress=False)[0]
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    assert names.count("gloo:all_reduce") == 18
    assert names.count("gloo:all_to_all") == 24
    assert "aten::mm" in names


LINE = re.compile(r"A2AUD rank=(\d+) call=(\d+) chunk=(\d+) sent=(\S+) got=(\S+) spre=(\S+) spost=(\S+)")


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_audit_logs_add_up_to_their_truth(fault: str | None) -> None:
    found = audit(4, 3, 2, fault=fault)
    rows = {}
    for lines in found.logs.values():
        for line in lines:
            match = LINE.fullmatch(line)
            assert match
            rank, call, chunk = (int(match[k]) for k in (1, 2, 3))
            rows[rank, call, chunk] = [match[k].split(",") for k in (4, 5, 6, 7)]
    missing, unequal = 0, []
    for call in range(3):
        for chunk in range(2):
            for src in range(4):
                for dst in range(4):
                    sender, receiver = rows.get((src, call, chunk)), rows.get((dst, call, chunk))
                    if sender is None or receiver is None:
                        missing += 1
                    elif sender[0][dst] != receiver[1][src]:
                        unequal.append({"call": call, "chunk": chunk, "src": src, "dst": dst})
    rewritten = sum(a != b for row in rows.values() for a, b in zip(row[2], row[3], strict=True))
    truth = found.truth
    assert (missing, unequal, rewritten) == (truth["missing"], truth["wrong_legs"], truth["rewritten_blocks"])
    assert truth["equal"] == truth["legs"] - missing - len(unequal) == 96 - missing - len(unequal)
    assert truth["self_wrong"] == sum(leg["src"] == leg["dst"] for leg in unequal)


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown transport fault 'gremlin'"):
        audit(2, 1, fault="gremlin")


@pytest.mark.parametrize("form", ["tp1-usp4", "tp2-usp2", "tp1-usp4+mask4", "tp1-usp2-cfg2", "tp1-usp2-pp2"])
def test_a_profiled_request_is_whole_and_its_steps_can_be_cut_out(form: str, tmp_path: Path) -> None:
    """Text encoder, four steps and decoder are one step of the profiler; each cut step has the kernels of one."""
    dit = DiT(layers=6, heads=8, kv_heads=8, head_dim=64, ffn_dim=2048, sequence_tokens=8192)
    running = ServingSession(Scenario("quiet", dit=dit), parse_split(form), QUAD)
    outcome = running.request(4, profiled=True)
    folders = write_session_capture(running, tmp_path)
    assert {row["Step Id"] for row in table(folders[0])} == {"1"}
    whole = load_capture(tmp_path)
    told = outcome.durations["Wan22Pipeline.diffuse"]
    found = cut(whole, Request(4, branches=1 if "cfg" in form else 2, layers=6 // running.split.pp, diffuse_s=told))
    steps, step = found.kernels["step"], running.captured_timeline()
    for rank in step.ranks:
        counts = steps[found.kernels["rank"] == rank].value_counts()
        assert counts[1] == sum(kernel.op.stream != "copy" for kernel in step.kernels(rank))
        assert max(counts[number] for number in (1, 2, 3, 4)) - min(counts[number] for number in (1, 2, 3, 4)) <= 1
    mine = found.windows[found.windows["rank"] == 0]
    assert (mine["end_ns"].max() - mine["start_ns"].min()) / 1e9 == pytest.approx(
        told, rel=0.02
    )  # ranks are logged up to 0.6 ms apart
    first = (mine["end_ns"] - mine["start_ns"]).iloc[0]
    assert first == pytest.approx(step.stage_ns[0], rel=1e-3)


def test_files_of_a_session_lie_where_the_release_puts_them_on_npus(tmp_path: Path) -> None:
    running = ServingSession(Scenario("quiet"), Split(usp=2), (0, 1))
    assert write_session_capture(running, tmp_path) == []  # nothing was profiled
    running.request(1, profiled=True)
    write_session_capture(running, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[2:] == ["diffusion_rank0", "diffusion_rank1"]
    assert all(re.fullmatch(r"20261009-\d{6}_stage_0_rep_0_diffusion_\d{10}", name) for name in names[:2])
    (folder,) = (tmp_path / "diffusion_rank1").iterdir()
    assert re.fullmatch(r"virtual-ascend_238_20261009\d{9}_ascend_pt", folder.name)
    assert (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").is_file()


@pytest.mark.parametrize("style", ["cuda", "cpu"])
def test_traces_of_gpus_and_cpus_lie_in_the_folder_of_the_session(style: str, tmp_path: Path) -> None:
    running = ServingSession(Scenario("quiet", serving=Serving(capture_style=style)), Split(usp=2), (0, 1))
    outcome = running.request(4, profiled=True)
    traces = write_session_capture(running, tmp_path)
    assert [path.name for path in traces] == ["trace_rank0.json", "trace_rank1.json"]
    assert re.fullmatch(r"20261009-\d{6}_stage_0_rep_0_diffusion_\d{10}", traces[0].parent.name)
    events = json.loads(traces[1].read_text())["traceEvents"]
    (whole,) = [event for event in events if event["name"] == "diffusion_forward"]
    request = Request(4, branches=2, layers=40, diffuse_s=outcome.durations["Wan22Pipeline.diffuse"])
    assert whole["dur"] / 1e6 > 1.05 * request.diffuse_s
    assert cut(load_capture(tmp_path), request).step_ids == (1, 2, 3, 4)


def test_stepwise_execution_captures_one_step(tmp_path: Path) -> None:
    options = Options(model="Qwen/Qwen-Image", stepwise=True)
    running = ServingSession(Scenario("quiet"), Split(usp=2), (0, 1), options=options)
    running.request(4, profiled=True, profile_step=2)
    assert running.captured_request() == running.captured_timeline()
