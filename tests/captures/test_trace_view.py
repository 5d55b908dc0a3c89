"""An Ascend capture of which only ``trace_view.json`` is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anchormatrix.attribution.steps import decompose
from anchormatrix.captures.open import load_capture
from anchormatrix.errors import InputError

HOST, DEVICE, HCCL = 1, 3, 4
BEGIN = 1_736_413_971_558_900


def named(pid: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def event(pid: int, name: str, at: object, dur: object, tid: int = 2, **args: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": at, "dur": dur, "args": args}


def task(at: int, dur: object, kind: str = "AI_CORE", name: str = "aclnnMatmul_MatMulV2") -> dict[str, object]:
    return event(DEVICE, name, f"{BEGIN + at}.125", dur, **{"Task Type": kind, "Physic Stream Id": 2})


def written(root: Path, *events: dict[str, object], wrap: bool = False) -> Path:
    path = root / "trace_view.json"
    listed = [named(DEVICE, "Ascend Hardware"), named(HOST, "Python"), named(HCCL, "Communication"), *events]
    path.write_text(json.dumps({"traceEvents": listed} if wrap else listed))
    return path


STEP = event(HOST, "ProfilerStep#1", f"{BEGIN}.000", 1000)


@pytest.mark.parametrize("wrap", [False, True])
def test_its_tasks_are_kernels_of_the_annotated_step(tmp_path, wrap):
    written(tmp_path, STEP, *(task(72 + 100 * number, 80.5) for number in range(8)), wrap=wrap)
    capture = load_capture(tmp_path)
    assert (capture.family, capture.rows_read, len(capture.kernels)) == ("ascend", 8, 8)
    assert capture.kernels["start_ns"].iloc[0] == 1_736_413_971_558_972_125
    step = decompose(capture).iloc[0]
    assert (step["step"], step["computing_ns"], step["stage_ns"]) == (1, 644_000, 1_000_000)
    assert "kernel_details.csv" in capture.notes[0]


def test_operations_of_hccl_are_communication_and_their_tasks_are_not_counted_twice(tmp_path):
    written(
        tmp_path,
        STEP,
        task(10, 100),
        event(HCCL, "hcom_allReduce__445_0_1", f"{BEGIN + 200}.000", 50, tid=9),
        event(HCCL, "Notify_Wait", f"{BEGIN + 200}.000", 20, tid=10),
        task(300, 40, "AI_VECTOR_CORE", "aiv_all_gather_910b_half"),
        task(400, 7, "EVENT_WAIT"),
    )
    kernels = load_capture(tmp_path).kernels
    assert kernels[["core", "family", "stream", "dur_ns"]].values.tolist() == [
        ["compute", "", "2", 100_000],
        ["communication", "allReduce", "N/A 445", 50_000],
        ["communication", "allGather", "2", 40_000],
        ["other", "", "2", 7_000],
    ]


def test_a_kernel_belongs_to_the_step_that_launched_it(tmp_path):
    late = task(1200, 10)
    arrow = {"cat": "async_npu", "name": "async_npu", "id": "7"}
    start = {**arrow, "ph": "s", "pid": HOST, "tid": 1, "ts": f"{BEGIN + 900}.000"}
    end = {**arrow, "ph": "f", "pid": DEVICE, "tid": 2, "ts": late["ts"]}
    written(tmp_path, STEP, task(10, 5), task(1500, 5), late, start, end)
    assert load_capture(tmp_path).kernels["step"].tolist() == [1, 1, -1]


def test_a_view_without_any_task_is_refused(tmp_path):
    written(tmp_path, STEP)
    with pytest.raises(InputError, match=r"trace_view\.json: holds no task of the device"):
        load_capture(tmp_path)


@pytest.mark.parametrize(
    "text", ["[", '{"traceEvents": 3}', "[]" * 2, '[{"ph": "X", "pid": [1]}, 7, null]', "[[[" * 9000]
)
def test_odd_files_are_refused_in_one_line(tmp_path, text):
    (tmp_path / "trace_view.json").write_text('[{"ph": "X"}]' if text == "" else text)
    with pytest.raises(InputError):
        load_capture(tmp_path)
