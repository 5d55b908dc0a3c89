"""What a sweep measures, and how the output of collective tests is read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from contracts import contract_on
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.measure.bandwidth.plan import (
    SweepOrder,
    bench_order,
    can_be_run,
    parse_bench,
    parse_collective_test,
    plan_sweep,
    points_of,
)
from anchormatrix.measure.bandwidth.plan import test_argv as argv_of
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.things import ModelSettings

MODEL = ModelSettings(layers=10, heads=8, kv_heads=8, head_dim=64, sequence_tokens=4096, weights_gb=1)
LINKS = tuple(tuple("X" if a == b else "UB" if a // 2 == b // 2 else "SYS" for b in range(4)) for a in range(4))
QUAD = contract_on((0, 1, 2, 3), LINKS, one_domain=False)


def plan(*names, concurrency=(1,)):
    forms = [parse_form(name) for name in names]
    return plan_sweep(forms, MODEL, QUAD, sizes_mb=[1, 4], concurrency=concurrency, repeats=5)


def test_the_whole_group_is_always_swept_and_sub_groups_as_the_forms_place_them():
    found = {(o.collective, o.cards, o.link_class) for o in plan("tp2-usp2")}
    assert found == {
        ("all_to_all", (0, 1, 2, 3), "SYS+UB"),
        ("all_gather", (0, 1, 2, 3), "SYS+UB"),
        ("all_reduce", (0, 1, 2, 3), "SYS+UB"),
        ("all_reduce", (0, 1), "UB"),
        ("all_to_all", (0, 2), "SYS"),
    }


def test_a_form_is_swept_at_its_own_concurrency_too():
    counts = {o.concurrency for o in plan("tp1-usp2-ag2+mask2") if o.ranks == 2}
    assert counts == {1, 2}


def test_equal_sweeps_are_made_once():
    assert len(plan("tp1-usp4", "tp1-usp4+mask2")) == 3


def test_the_configured_command_is_filled_word_by_word():
    order = plan("tp1-usp4")[2]
    assert argv_of(["t", "{collective}", "-d={cards}", "{min_bytes}:{max_bytes}"], order) == [
        "t",
        "alltoall",
        "-d=0,1,2,3",
        "1000000:4000000",
    ]
    with pytest.raises(ConfigError, match=r"\{size\} is not known"):
        argv_of(["{size}"], order)


def test_several_communicators_need_a_place_in_the_command():
    order = next(o for o in plan(concurrency=(2,)) if o.concurrency == 2)
    assert not can_be_run(["t", "{cards}"], order)
    assert can_be_run(["t", "{concurrency}"], order)
    assert can_be_run([], order)


VENDOR = """the minbytes is 1048576, maxbytes is 4194304, iters is 20
data_size(Bytes):  |  avg_time(us):  |  alg_bandwidth(GB/s):  |  check_result:
1048576            |  203.25         |  5.15903               |  success
4194304            |  402.50         |  10.42061              |  success
"""
COMMON = """# nThread 1 nGpus 4 minBytes 1048576
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    96.20   10.90   16.35      0
# Avg bus bandwidth    : 16.35
"""


def test_both_kinds_of_table_are_read():
    assert parse_collective_test(VENDOR, command="t") == ((1048576, 203.25), (4194304, 402.5))
    assert parse_collective_test(COMMON, command="t") == ((1048576, 96.2),)
    assert parse_collective_test("size | time(ms)\n1000 | 0.5\n", command="t") == ((1000, 500.0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row of a collective test in its output; last line «»"),
        ("[EI0006] socket bind failed", "last line «[EI0006] socket bind failed»"),
        (VENDOR.replace("203.25", "nan"), "impossible row"),
        (VENDOR.replace("203.25", "-1"), "impossible row"),
        (VENDOR.replace("203.25", "fast"), "unreadable row"),
        (VENDOR.replace("success", "failed", 1), "the test's own result check failed"),
        (VENDOR.splitlines()[1] + "\n1048576", "unreadable row"),
    ],
)
def test_unusable_output_shows_its_line(text, message):
    with pytest.raises(InputError) as error:
        parse_collective_test(text, command="t")
    assert message in str(error.value)


@given(st.text(max_size=200))
def test_any_text_is_a_table_or_one_clear_error(text):
    for parse in (parse_collective_test, parse_bench):
        try:
            assert parse(text, command="t")
        except InputError as error:
            assert "\n" not in str(error)


def test_the_benchs_median_counts_and_chatter_is_passed_over():
    text = 'warning: x\n{"bytes": 1000, "times_us": [10.0, 900.0, 12.0]}\n'
    assert parse_bench(text, command="bench") == ((1000, 12.0),)
    with pytest.raises(InputError, match="impossible line"):
        parse_bench('{"bytes": 1000, "times_us": []}\n', command="bench")


def test_points_carry_wire_bandwidth():
    order = next(o for o in plan() if o.collective == "all_gather")
    (point,) = points_of(order, [(1_000_000, 100.0)])
    assert (point.ranks, point.link_class, point.gb_s) == (4, "SYS+UB", pytest.approx(30.0))


def test_the_benchs_order_names_no_card_numbers():
    assert bench_order(plan()[0], device="cpu", backend="gloo") == (
        '{"collective":"all_gather","ranks":4,"communicators":1,"sizes":[1000000,4000000],"repeats":5,'
        '"device":"cpu","backend":"gloo"}'
    )


@pytest.mark.real_engine
@pytest.mark.parametrize("collective", ["all_to_all", "all_gather", "all_reduce", "send_recv"])
def test_the_micro_benchmark_runs_on_real_ranks(collective):
    python = Path(__file__).resolve().parents[3] / ".venv-dummy-run" / "bin" / "python"
    if not python.exists():
        pytest.skip("needs the dummy run's environment: make dummy-run-env")
    order = SweepOrder(collective, (0, 1), "NUMA", 2, (100_000,), 2)
    source = (
        Path(__file__).resolve().parents[3] / "anchormatrix" / "measure" / "bandwidth" / "collective_bench.py"
    ).read_text()
    command = [python, "-c", source, bench_order(order, device="cpu", backend="gloo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (point,) = points_of(order, parse_bench(done.stdout, command="bench"))
    assert (point.bytes, point.concurrency) == (100_000, 2)
