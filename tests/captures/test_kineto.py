"""Torch traces: GPU runs with NCCL, CPU runs with gloo."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchormatrix.captures.kineto import read_trace
from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import OUTSIDE
from anchormatrix.errors import InputError


def event(name: str, cat: str, ts: object, dur: object, *, tid: object = 7, **args: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": cat, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(tmp_path: Path, events: list[dict[str, object]], *, rank: int | None = 0, name: str = "t.json") -> Path:
    head = {"distributedInfo": {"rank": rank}} if rank is not None else {}
    path = tmp_path / name
    data = json.dumps({"schemaVersion": 1, **head, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def rows_of(path: Path) -> list[dict[str, object]]:
    return read_trace(path).table.to_pylist()


def test_kernels_copies_and_collectives_of_a_gpu(tmp_path):
    rows = rows_of(
        written(
            tmp_path,
            [
                event("gemm", "kernel", 10, 5, stream=7),
                event("ncclDevKernel_AllGather_RING_LL(x)", "kernel", 11, 2, stream=24, **{"Process Group Name": "3"}),
                event("Memcpy HtoD", "gpu_memcpy", 20, 1, stream=9),
                event("cudaLaunchKernel", "cuda_runtime", 5, 1),
                event("aten::mm", "cpu_op", 5, 1),
            ],
        )
    )
    found = [(r["name"][:8], r["core"], r["stream"], r["family"], r["communicator"]) for r in rows]
    assert found == [
        ("gemm", "compute", "7", "", ""),
        ("ncclDevK", "communication", "24", "allGather", "3"),
        ("Memcpy H", "copy", "9", "", ""),
    ]


@pytest.mark.parametrize(
    ("kernel", "stated", "family"),
    [
        ("ncclDevKernel_SendRecv(x)", "all_to_all", "alltoall"),
        ("ncclDevKernel_SendRecv(x)", "all_to_allv", "alltoallv"),
        ("ncclDevKernel_SendRecv(x)", "coalesced", "sendRecv"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "", "sendRecv"),
        ("ncclDevKernel_AllGather_RING_LL(x)", "_allgather_base", "allGather"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "allreduce", "allReduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "_reduce_scatter_base", "reduceScatter"),
    ],
)
def test_a_collective_is_what_the_event_states_else_what_its_kernel_is_called(tmp_path, kernel, stated, family):
    args = {"Collective name": stated} if stated else {}
    assert rows_of(written(tmp_path, [event(kernel, "kernel", 1, 1, stream=9, **args)]))[0]["family"] == family


def test_time_stamps_with_decimals_are_exact(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1736413971558972.912,"dur":0.001}]}'
    )
    row = rows_of(path)[0]
    assert (row["start_ns"], row["dur_ns"]) == (1_736_413_971_558_972_912, 1)


def test_a_kernel_belongs_to_the_step_that_launched_it_even_when_the_next_one_has_begun(tmp_path):
    rows = rows_of(
        written(
            tmp_path,
            [
                event("ProfilerStep#4", "user_annotation", 0, 100),
                event("ProfilerStep#5", "user_annotation", 100, 100),
                event("ProfilerStep#4", "gpu_user_annotation", 50, 100),  # the device's copy is not the step
                event("cudaLaunchKernel", "cuda_runtime", 90, 1, correlation=1),
                event("cudaLaunchKernel", "cuda_runtime", 110, 1, correlation=2),
                event("late", "kernel", 130, 5, correlation=1, stream=7),
                event("own", "kernel", 140, 5, correlation=2, stream=7),
                event("unlaunched", "kernel", 150, 5, correlation=9, stream=7),
                event("after", "kernel", 500, 5, stream=7),
            ],
        )
    )
    assert {row["name"]: row["step"] for row in rows} == {"late": 4, "own": 5, "unlaunched": OUTSIDE, "after": OUTSIDE}


def test_any_annotation_that_counts_steps_will_do(tmp_path):
    trace = read_trace(
        written(tmp_path, [event("denoise_step 3", "user_annotation", 0, 10), event("k", "kernel", 1, 1, stream=7)])
    )
    assert trace.windows == ((3, 0, 10_000),)


def test_a_trace_without_annotations_is_one_step(tmp_path):
    assert rows_of(written(tmp_path, [event("k", "kernel", 1, 1, stream=7)]))[0]["step"] == 0


CPU = [
    event("aten::linear", "cpu_op", 0, 100, tid=1),  # hands on to addmm, which fills most of it
    event("aten::addmm", "cpu_op", 2, 96, tid=1),
    event("aten::empty", "cpu_op", 3, 2, tid=1),  # an allocation belongs to the operator around it
    event("c10d::alltoall_base_", "cpu_op", 110, 20, tid=1),
    event("record_param_comms", "cpu_op", 111, 10, tid=1, **{"Process Group Name": "5"}),
    event("gloo:all_to_all", "user_annotation", 112, 60, tid=1),
    event("aten::mul", "cpu_op", 135, 10, tid=1),
    event("aten::other_thread", "cpu_op", 0, 50, tid=2),
    event("aten::copy_", "cpu_op", 120, 20, tid=3),  # a part of gloo's work on a thread of gloo
    event("gloo:all_to_all", "user_annotation", 112, 60, tid=3),
]


def test_a_cpu_run_computes_in_the_operators_of_its_threads_and_communicates_over_gloo(tmp_path):
    rows = rows_of(written(tmp_path, CPU))
    assert [(r["name"], r["core"], r["start_ns"], r["dur_ns"]) for r in rows] == [
        ("aten::linear", "host", 0, 2_000),  # its own time, before and after what it calls
        ("aten::linear", "host", 98_000, 2_000),
        ("aten::addmm", "compute", 2_000, 96_000),
        ("c10d::alltoall_base_", "host", 110_000, 20_000),
        ("aten::mul", "compute", 135_000, 10_000),
        ("aten::other_thread", "compute", 0, 50_000),
        ("gloo:all_to_all", "communication", 112_000, 60_000),
        ("gloo:all_to_all", "communication", 112_000, 60_000),
    ]
    assert (rows[-1]["family"], rows[-1]["communicator"]) == ("alltoall", "5")


def test_events_without_exact_times_are_counted_and_refused_above_the_limit(tmp_path):
    events = [event("k", "kernel", i, 1, stream=7) for i in range(9)]
    written(tmp_path, [*events, event("k", "kernel", "soon", 1, stream=7)])
    with pytest.raises(InputError, match="1 of 10 rows are unusable"):
        load_capture(tmp_path)
    assert load_capture(tmp_path, limit_pct=10).unusable == 1


@pytest.mark.parametrize("text", ['{"traceEvents": [{"ph"', '{"traceEvents": 3}', '{"traceEvents": []}'])
def test_what_is_no_usable_trace_is_refused_by_name(tmp_path, text):
    path = tmp_path / "rank-0.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"rank-0\.json"):
        read_trace(path)


def test_a_truncated_gzip_is_refused_by_name(tmp_path):
    path = written(tmp_path, [event("k", "kernel", 1, 1)], name="rank-0.json.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"rank-0\.json\.gz"):
        load_capture(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    times=st.lists(st.tuples(st.integers(0, 2**61), st.integers(0, 10**9)), min_size=1, max_size=10), gz=st.booleans()
)
def test_generated_traces_come_back_as_they_were_written(tmp_path, times, gz):
    lines = ",".join(
        f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,'
        f'"ts":{a // 1000}.{a % 1000:03d},"dur":{d // 1000}.{d % 1000:03d}}}'
        for a, d in times
    )
    path = tmp_path / ("t.json.gz" if gz else "t.json")
    data = f'{{"traceEvents":[{lines}]}}'.encode()
    path.write_bytes(gzip.compress(data) if gz else data)
    assert [(row["start_ns"], row["dur_ns"]) for row in rows_of(path)] == times


def launched(number: int, operator: dict[str, object], kernel: str, **by: object) -> list[dict[str, object]]:
    at = 100 * number
    return [
        {**operator, "pid": 1, "tid": 1, "ts": at, "dur": 10},
        {**event("cudaLaunchKernel", "cuda_runtime", at + 2, 1, tid=1, correlation=number), "pid": 1},
        event(kernel, "kernel", at + 5, 30, stream=20, correlation=number, **by),
    ]


def test_a_generic_kernel_takes_family_and_group_of_the_operator_that_launched_it(tmp_path):
    record = event("record_param_comms", "cpu_op", 0, 1, **{"External id": 41, "Collective name": "_allgather_base"})
    record["args"] |= {"Process Group Name": "tp"}
    generic = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    events = [
        *launched(1, record, generic, **{"External id": 41}),
        *launched(2, event("c10d::allreduce_", "cpu_op", 0, 1), generic),  # by the time of its launch
        *launched(3, event("aten::mm", "cpu_op", 0, 1), generic),
        *launched(4, event("aten::scatter_reduce", "cpu_op", 0, 1), "reduce_scatter_rows_kernel"),
        *launched(5, event("symm_mem::one_shot_all_reduce", "cpu_op", 0, 1), "vectorized_copy<x>"),
    ]
    written(tmp_path, events)
    capture = load_capture(tmp_path)
    assert capture.kernels[["family", "communicator", "core"]].values.tolist() == [
        ["allGather", "tp", "communication"],
        ["allReduce", "", "communication"],
        ["unrecognised", "", "communication"],
        ["", "", "compute"],
        ["", "", "compute"],
    ]
    assert [(one.kind, one.ranks) for one in capture.findings] == [("unexplained_name", (0,)), ("unknown_family", (0,))]
    assert capture.findings[0].text.startswith("1 kernels (0.030 ms) look like a collective and nothing says so")


def test_a_collective_with_computing_inside_is_a_finding(tmp_path):
    written(tmp_path, [event("allreduce_fusion_kernel_oneshot_lamport<8, x>", "kernel", 1, 2)])
    assert [one.kind for one in load_capture(tmp_path).findings] == ["fused_collective"]


def test_the_operator_that_is_still_open_launched_a_kernel_however_many_ended_before(tmp_path):
    generic = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    ended = [event("nccl:broadcast", "user_annotation", 110 + number / 100, 0.005, tid=1) for number in range(200)]
    written(
        tmp_path,
        [
            {**event("c10d::allreduce_", "cpu_op", 100, 900, tid=1), "pid": 1},
            *({**one, "pid": 1} for one in ended),
            {**event("cudaLaunchKernel", "cuda_runtime", 500, 1, tid=1, correlation=9), "pid": 1},
            event(generic, "kernel", 600, 5, correlation=9),
        ],
    )
    assert load_capture(tmp_path).kernels["family"].tolist() == ["allReduce"]
