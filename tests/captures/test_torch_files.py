"""Torch traces as files: where the events lie, what is damaged, whose devices, and what is refused by name."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import OUTSIDE, Capture
from anchormatrix.captures.torch import beside
from anchormatrix.errors import InputError

SCRIPTS = Path(__file__).parents[2] / "scripts"
KERNEL = '{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":10,"dur":100,"args":{"stream":7}}'
OTHER = KERNEL.replace('"ts":10', '"ts":200')


def read(folder: Path, *texts: bytes | str, **options: bool) -> Capture:
    """The capture of files that hold these texts, one per rank."""
    for rank, text in enumerate(texts):
        (folder / f"rank{rank}.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return load_capture(folder, **options)


def event(cat: str, ts: int, dur: int, *, name: str = "gemm", **args: object) -> str:
    return json.dumps({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args})


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents":[%s,%s]}',
        '{"schemaVersion":1,"deep":{"a":[{"b":"]}"}]},"traceEvents":[%s,%s],"traceName":"x"}',
        '\ufeff  {"traceEvents" : [\n%s ,\n%s\n]\n}\n',
        "[%s,%s]",
        "[%s,%s",  # the format allows a list of events that is not closed
        "[%s,\n%s,\n",
        '{"traceEvents":[%s,%s],"odd":[NaN,-Infinity,1e999]}',
        '{"traceEvents":[{"ph":"X","args":{"x":NaN}},%s,%s]}',
        '{"traceEvents":[],"traceEvents":[%s,%s]}',
        '{"traceEvents":[{"ph":"i","name":"a\\ud800"},null,7,"x",[],%s,%s]}',
    ],
)
def test_events_are_found_wherever_they_lie(tmp_path, text):
    capture = read(tmp_path, text % (KERNEL, OTHER))
    assert capture.kernels["start_ns"].tolist() == [10_000, 200_000]
    assert capture.kernels["dur_ns"].tolist() == [100_000, 100_000]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"traceEvents":[%s,{"ph":"X","cat":"ker', "cut off"),
        ('{"traceEvents":[%s', "is cut off: traceEvents is not closed"),
        ("[%s,{", "cut off"),
        ('{"traceEvents":[%s]', "its object is not closed"),
        ('{"traceEvents":7,"x":"%s"}', "traceEvents is something else"),
        ('{"traceEvents":[%s]}trailing', "goes on behind its end"),
    ],
)
def test_what_is_cut_off_inside_is_refused(tmp_path, text, what):
    with pytest.raises(InputError, match=what):
        read(tmp_path, text % KERNEL.replace('"', '\\"') if ":7," in text else text % KERNEL)


@pytest.mark.parametrize("category", ["xpu_driver", "privateuse1_driver", "hip_runtime_api", "cuda_runtime"])
def test_calls_of_any_runtime_or_driver_say_whose_step_a_kernel_is(tmp_path, category):
    events = [
        event("user_annotation", 1000, 100, name="ProfilerStep#1"),
        event(category, 1005, 1, name="launchKernel", correlation=1),
        event("kernel", 1010, 40, stream=7, correlation=1),
        event("kernel", 1050, 30, stream=7, correlation=99),  # launched before the trace began
    ]
    capture = read(tmp_path, "[" + ",".join(events) + "]")
    assert capture.kernels["step"].tolist() == [1, OUTSIDE]
    assert capture.findings == ()


@pytest.mark.parametrize("text", [b"", b" \n", gzip.compress(b"")])
def test_an_empty_file_beside_a_rank_is_said(tmp_path, text):
    name = "rank1.json.gz" if text[:2] == b"\x1f\x8b" else "rank1.json"
    (tmp_path / name).write_bytes(text)
    capture = read(tmp_path, "[" + KERNEL + "]")
    assert capture.kernels["dur_ns"].tolist() == [100_000]
    assert [found.text for found in capture.findings] == [f"rank 1 is left out: {tmp_path / name} is empty"]
    with pytest.raises(InputError, match="is empty"):
        load_capture(tmp_path, every_rank=True)


def test_a_rank_cut_off_before_its_events_is_said_and_other_files_of_a_rank_are_not(tmp_path):
    (tmp_path / "rank1.json").write_text('{"schemaVersion": 1, "deviceProper')
    (tmp_path / "rank0_memory.json").write_text("{}")
    capture = read(tmp_path, "[" + KERNEL + "]")
    texts = [found.text for found in capture.findings]
    assert texts == [f"rank 1 is left out: {tmp_path / 'rank1.json'} holds no list of events"]
    with pytest.raises(InputError, match="holds no list of events"):
        load_capture(tmp_path, every_rank=True)


def test_invalid_bytes_are_replaced_and_counted(tmp_path):
    damaged = KERNEL.encode().replace(b"gemm", b"ge\xff\xfem")
    capture = read(tmp_path, b'{"traceEvents":[' + damaged + b"," + OTHER.encode() + b"]}")
    assert capture.kernels["name"].tolist() == ["ge\ufffd\ufffdm", "gemm"]
    assert [(found.kind, found.ranks) for found in capture.findings] == [("replaced_bytes", (0,))]
    assert capture.findings[0].text.startswith("2 invalid bytes (not UTF-8) in ")


def test_a_lone_surrogate_in_a_name_is_no_crash(tmp_path):
    capture = read(tmp_path, '{"traceEvents":[' + KERNEL.replace("gemm", "a\\ud800b") + "]}")
    assert capture.kernels["dur_ns"].tolist() == [100_000]


@pytest.mark.parametrize("devices", [(0, 1), ("0", "1"), (2, 5)])
def test_two_devices_in_a_file_are_two_ranks(tmp_path, devices):
    first, second = devices
    events = [event("kernel", 10, 100, device=first, stream=7), event("kernel", 50, 100, device=second, stream=7)]
    capture = read(tmp_path, f'{{"traceEvents":[{",".join(events)}]}}')
    assert capture.ranks == (int(first), int(second))
    assert [rows["dur_ns"].sum() for _, rows in capture.per_rank()] == [100_000, 100_000]
    assert [found.kind for found in capture.findings] == ["several_devices"]
    with pytest.raises(InputError, match="beside 1 other traces"):
        read(tmp_path, f'{{"traceEvents":[{",".join(events)}]}}', f'{{"traceEvents":[{KERNEL}]}}')


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("hpu_op", "gemm"),
        ("mtia_ccp_events", "gemm"),
        ("privateuse1_kernel", "gemm"),
        ("gpu_memcpy", "Memcpy HtoD"),
    ],
)
def test_device_activity_without_kernels_is_refused_by_its_categories(tmp_path, category, name):
    host = event("cpu_op", 0, 160, name="aten::mm")
    with pytest.raises(InputError, match=rf"device activity and no kernel: events of {category} \(2\)"):
        read(tmp_path, f'{{"traceEvents":[{host},{",".join(2 * [event(category, 10, 50, name=name, stream=7)])}]}}')


def test_launches_without_device_activity_are_refused_with_what_to_switch_on(tmp_path):
    events = (
        event("cpu_op", 0, 50, name="aten::mm"),
        event("cuda_runtime", 5, 5, name="cudaLaunchKernel", correlation=1),
    )
    with pytest.raises(InputError, match=r"launches and no device activity: events of cuda_runtime \(1\)") as refused:
        read(tmp_path, f'{{"traceEvents":[{",".join(events)}]}}')
    assert "ProfilerActivity.CUDA" in str(refused.value)


def test_a_rank_of_metadata_is_left_out_unless_all_are_asked_for(tmp_path):
    empty = '{"traceEvents":[{"ph":"M","name":"process_name","pid":0,"args":{"name":"python"}}]}'
    capture = read(tmp_path, f'{{"traceEvents":[{KERNEL}]}}', empty)
    assert capture.ranks == (0,)
    assert [(found.kind, found.ranks) for found in capture.findings] == [("empty_rank", (1,))]
    with pytest.raises(InputError, match="holds no kernel"):
        load_capture(tmp_path, every_rank=True)
    (tmp_path / "rank0.json").write_text(empty)
    with pytest.raises(InputError, match="holds no kernel"):
        load_capture(tmp_path)


def test_a_rank_of_the_host_alone_beside_others_is_left_out(tmp_path):
    launches = event("cuda_runtime", 5, 5, name="cudaLaunchKernel", correlation=1)
    capture = read(tmp_path, f'{{"traceEvents":[{KERNEL}]}}', f'{{"traceEvents":[{launches}]}}')
    assert capture.ranks == (0,)
    assert "launches and no device activity" in capture.findings[0].text


def test_profiler_steps_recorded_as_operators_are_steps(tmp_path):
    step = event("cpu_op", 0, 150, name="ProfilerStep#3")
    capture = read(tmp_path, f'{{"traceEvents":[{step},{KERNEL},{OTHER}]}}')
    assert capture.kernels["step"].tolist() == [3, -1]


def test_times_stay_exact_to_the_nanosecond(tmp_path):
    exact = KERNEL.replace('"ts":10', '"ts":1736413971558972.913').replace('"dur":100', '"dur":"0.001"')
    capture = read(tmp_path, f'{{"traceEvents":[{exact}]}}')
    assert (capture.kernels["start_ns"][0], capture.kernels["dur_ns"][0]) == (1736413971558972913, 1)


def test_pieces_end_between_events(tmp_path):
    """Three megabytes of events with brackets and commas in their names and in what is not used."""
    name = "a}, {b" + "x" * 500
    events = [event("kernel", at, 1, name=name, y="}, {" * 20, stream=7) for at in range(5000)]
    capture = read(tmp_path, '{"traceEvents":[' + ", ".join(events) + "]}")
    assert capture.kernels["start_ns"].tolist() == [1000 * at for at in range(5000)]


def test_ranks_read_in_processes_are_those_read_here(tmp_path, monkeypatch):
    texts = [f'{{"traceEvents":[{KERNEL},{OTHER}]}}', f'{{"traceEvents":[{OTHER}]}}']
    here = read(tmp_path, *texts)
    monkeypatch.setattr(beside, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr(beside.os, "sched_getaffinity", lambda _: {0, 1})
    there = load_capture(tmp_path)
    assert there.kernels.equals(here.kernels)
    (tmp_path / "rank1.json").write_text('{"traceEvents":[')
    with pytest.raises(InputError, match=r"rank1\.json: is not a readable trace"):
        load_capture(tmp_path)


@pytest.mark.parametrize(
    "script",
    ["attribute", "collective_attribution", "mask_bound_calc", "bubble_attribution", "stage_delta", "perfetto_export"],
)
def test_a_capture_without_rows_is_exit_code_2_in_every_command(tmp_path, script):
    (tmp_path / "t.json").write_text('{"traceEvents":[]}')
    folders = (
        ["--profile-dir", tmp_path, "--profile-dir", tmp_path]
        if script == "stage_delta"
        else ["--profile-dir", tmp_path]
    )
    out = ["--out", tmp_path / "out.json"] if script in ("attribute", "perfetto_export") else []
    done = subprocess.run(
        [sys.executable, SCRIPTS / f"{script}.py", *folders, *out], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "holds no kernel" in done.stderr
