"""Torch traces of runs on the host: what computes, what only hands on, what waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anchormatrix.attribution.differences import delta
from anchormatrix.attribution.slowest import slowest_rank
from anchormatrix.attribution.steps import check_identities, decompose, step_rows
from anchormatrix.captures.naming.host_work import Work, work_of
from anchormatrix.captures.open import load_capture
from anchormatrix.records.attribution import StepRow

REAL = Path(__file__).parents[3] / "shared" / "captures" / "sglang"


def op(name: str, start: int, end: int, *, cat: str = "cpu_op", tid: int = 1) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": start, "dur": end - start, "args": {}}


def step_of(folder: Path, *events: dict[str, object]) -> StepRow:
    folder.mkdir(exist_ok=True)
    (folder / "rank-0.json").write_text(json.dumps({"traceEvents": list(events)}))
    table = decompose(load_capture(folder))
    assert check_identities(table) == []
    row = slowest_rank(step_rows(table))
    assert row is not None
    return row


def parts(row: StepRow) -> tuple[float, float, float, float, float]:
    """Stage, computing, exposed communication, host and free, in µs."""
    times = (row.stage_ms, row.computing_ms, row.exposed_ms, row.host_ms, row.free_ms)
    return tuple(round(1000 * time) for time in times)  # type: ignore[return-value]


STEP = op("ProfilerStep#1", 0, 1000, cat="user_annotation")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # The wrapper's own 600 µs are host time, however little of it what it calls fills.
        ([op("PythonDispatchMode", 0, 800), op("aten::mm", 100, 300)], (200, 600, 200)),
        ([op("TorchDispatchMode", 0, 800), op("PythonSubclass", 50, 750), op("aten::mm", 100, 300)], (200, 600, 200)),
        ([op("MyAttentionBackward", 0, 500), op("aten::bmm", 0, 400)], (400, 100, 500)),
        ([op("autograd::engine::evaluate_function: MmBackward0", 0, 500)], (0, 500, 500)),
        # An operator that ends in Python hands on, whatever its name: the inner one of the same name computes.
        ([op("aten::addmm", 0, 800), op("PythonDispatchMode", 50, 400), op("aten::addmm", 60, 160)], (100, 700, 200)),
        ([op("aten::matmul", 0, 500), op("aten::view", 10, 60), op("aten::mm", 100, 400)], (300, 200, 500)),
        # A kernel keeps the allocations, casts and copies that it calls.
        (
            [op("aten::addmm", 0, 500), op("aten::empty", 10, 100), op("aten::copy_", 100, 400)],
            (500, 0, 500),
        ),
        ([op("aten::add", 0, 500), op("aten::to", 0, 300), op("aten::copy_", 0, 290)], (500, 0, 500)),
        ([op("aten::to", 0, 500), op("aten::_to_copy", 50, 450), op("aten::copy_", 100, 400)], (300, 200, 500)),
        # Kernels of operator libraries and of inductor compute; a library's collective does not.
        ([op("_C::rms_norm", 0, 100), op("graph_0_cpp_fused_add_mul_1", 200, 300)], (200, 0, 800)),
        (
            [op("vllm::all_reduce", 0, 300), op("c10d::allreduce_", 100, 200), op("aten::copy_", 120, 180)],
            (0, 300, 700),
        ),
        ([op("aten::empty", 0, 100), op("aten::view", 100, 300), op("aten::mul", 300, 400)], (100, 300, 600)),
        # Python functions, where the trace has them; those that wait are idle.
        (
            [
                op("model.py(7): forward", 0, 900, cat="python_function"),
                op("aten::mm", 100, 500),
                op("<built-in method wait of Work object at 0x7f>", 600, 800, cat="python_function"),
            ],
            (400, 300, 300),
        ),
        ([op("threading.py(331): wait", 0, 1000, cat="python_function", tid=9), op("aten::mm", 0, 10)], (10, 0, 990)),
    ],
)
def test_computing_is_what_kernels_do_and_a_wrappers_own_time_is_host_time(tmp_path, events, expected):
    stage, computing, exposed, host, free = parts(step_of(tmp_path, STEP, *events))
    assert (stage, exposed) == (1000, 0)
    assert (computing, host, free) == expected


def test_host_time_beside_communication_is_exposed_communication(tmp_path):
    row = step_of(
        tmp_path,
        STEP,
        op("PythonDispatchMode", 0, 600),
        op("aten::mm", 0, 100),
        op("_c10d_functional::wait_tensor", 600, 950),
        op("gloo:all_reduce", 400, 900, cat="user_annotation", tid=2),
    )
    assert parts(row) == (1000, 100, 500, 300, 100)


def test_the_threads_of_a_rank_are_united_and_never_added_up(tmp_path):
    """The second thread computes 300 to 900, of which the first computes 300 to 500 too; its wrapper ends at 950."""
    row = step_of(
        tmp_path,
        STEP,
        op("PythonDispatchMode", 0, 600),
        op("aten::mm", 100, 500),
        op("autograd::engine::evaluate_function: MmBackward0", 250, 950, tid=3),
        op("aten::mm", 300, 900, tid=3),
    )
    assert parts(row) == (1000, 800, 0, 150, 50)


def test_operators_on_the_threads_of_gloo_are_their_collective(tmp_path):
    row = step_of(
        tmp_path,
        STEP,
        op("aten::mm", 0, 400),
        op("gloo:all_gather", 400, 700, cat="user_annotation", tid=2),
        op("aten::copy_", 450, 650, tid=2),
    )
    assert parts(row) == (1000, 400, 300, 0, 300)


def test_gloo_on_the_thread_that_started_it_leaves_that_thread_its_operators(tmp_path):
    row = step_of(tmp_path, STEP, op("aten::mm", 0, 400), op("gloo:all_reduce", 300, 700, cat="user_annotation"))
    assert parts(row) == (1000, 400, 300, 0, 300)


def test_a_worker_of_a_pool_that_has_nothing_to_do_is_idle(tmp_path):
    row = step_of(
        tmp_path,
        STEP,
        op("aten::mm", 0, 400),
        op("concurrent/futures/thread.py(81): _worker", 0, 1000, cat="python_function", tid=3),
        op("<built-in method get of _queue.SimpleQueue object at 0x7f>", 0, 500, cat="python_function", tid=3),
        op("engine.py(7): encode", 500, 700, cat="python_function", tid=3),
        op("aten::mm", 550, 650, tid=3),
    )
    assert parts(row) == (1000, 500, 0, 100, 400)


def test_the_difference_of_two_forms_names_dispatch_and_gloo_where_the_products_are_equal(tmp_path):
    one = step_of(tmp_path / "a", op("ProfilerStep#1", 0, 250, cat="user_annotation"), op("aten::mm", 0, 231))
    two = step_of(
        tmp_path / "b",
        op("ProfilerStep#1", 0, 1000, cat="user_annotation"),
        op("PythonDispatchMode", 0, 834),
        op("aten::mm", 0, 218),
        op("gloo:all_reduce", 834, 980, cat="user_annotation", tid=2),
    )
    change = delta(one, two)
    found = [round(1000 * value) for value in (change.computing_ms, change.host_ms, change.exposed_ms, change.free_ms)]
    assert found == [-13, 616, 146, 1]
    assert change.closes


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu", Work.COMPUTES),
        ("aten::scaled_dot_product_attention", Work.HANDS_ON),
        ("aten::linear", Work.HANDS_ON),
        ("aten::as_strided", Work.HANDS_ON),
        ("aten::fbgemm_linear_fp16_weight", Work.COMPUTES),
        ("mkldnn::_linear_pointwise", Work.COMPUTES),
        ("Torch-Compiled Region: 0/0", Work.HANDS_ON),
        ("record_param_comms", Work.COMMUNICATES),
        ("_c10d_functional::wait_tensor", Work.WAITS),
    ],
)
def test_the_own_time_of_an_operator(name, work):
    assert work_of(name) is work


@pytest.mark.skipif(not REAL.is_dir(), reason="the real captures are not here")
@pytest.mark.parametrize(
    ("folder", "products_us", "computing_us"),
    # The exclusive time of the matrix products and of all aten operators, added up from the trace by itself.
    [("zimage-1rank", 72_061, 139_603), ("zimage-tp2", 78_768, 156_091), ("zimage-ulysses2", 101_331, 204_258)],
)
def test_a_real_servers_computing_is_its_operators(folder, products_us, computing_us):
    kernels = load_capture(REAL / folder).kernels
    computing = kernels[kernels["core"] == "compute"]
    products = computing["name"].astype(str).str.fullmatch(r"aten::(mm|addmm|bmm|_scaled_dot_product_flash.*)")
    assert computing[products]["dur_ns"].sum() / 1e3 == pytest.approx(products_us, rel=0.03)
    assert 0.85 * computing_us < computing["dur_ns"].sum() / 1e3 < computing_us
    stage = step_rows(decompose(load_capture(REAL / folder)))
    assert all(row.host_ms > 0 for row in stage)


def test_the_start_of_a_collective_is_host_time_and_no_unexplained_name(tmp_path):
    events = [
        op("PythonDispatchMode", 0, 100),
        op("aten::mm", 10, 40),
        op("c10d::allreduce_", 50, 90),
        op("gloo:all_reduce", 60, 80, cat="cpu_op", tid=4),
    ]
    assert parts(step_of(tmp_path, *events)) == (100, 30, 20, 50, 0)
    assert load_capture(tmp_path).findings == ()
