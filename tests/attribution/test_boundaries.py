"""The boundaries of steps on the device, against an oracle that goes through the time microsecond by microsecond."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from attribution_tables import capture_of, collective, compute

from anchormatrix.attribution.collectives import collectives, reconcile
from anchormatrix.attribution.reading import collectives_words
from anchormatrix.attribution.steps import check_identities, choose_step, decompose, outside, step_findings
from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import OUTSIDE, STEP_COLUMNS, Capture
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import AttributionStatus

Event = dict[str, object]
CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "traces"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
MS = 1_000_000


def step(number: int, start: int, end: int, name: str = "ProfilerStep#") -> Event:
    return {"ph": "X", "cat": "user_annotation", "name": f"{name}{number}", "pid": 1, "tid": 1, "ts": start} | {
        "dur": end - start
    }


def launch(at: int, number: int, name: str = "cudaLaunchKernel") -> Event:
    args = {"correlation": number}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 1, "args": args}


def kernel(start: int, end: int, number: int, name: str = "gemm", cat: str = "kernel", stream: int = 7) -> Event:
    args = {"stream": stream, "correlation": number}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": end - start, "args": args}


def reduce(start: int, end: int, number: int) -> Event:
    return kernel(start, end, number, REDUCE, stream=20)


def copy(start: int, end: int, number: int, cat: str = "gpu_memcpy") -> Event:
    return kernel(start, end, number, "Memcpy HtoD", cat, stream=21)


def captured(folder: Path, *events: Event) -> Capture:
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    return load_capture(folder)


def parts(capture: Capture, *columns: str) -> list[tuple[int, ...]]:
    """The columns of each step, in µs."""
    table = decompose(capture)
    assert check_identities(table) == []
    times = [f"{column}_ns" for column in columns]
    return [tuple(int(row[time]) // 1000 for time in times) for row in table.to_dict("records")]


def left(capture: Capture) -> list[tuple[float, ...]]:
    """Kernels outside, and µs of computing, communication and copies."""
    return [
        (row.kernels, *(round(1000 * time) for time in (row.computing_ms, row.communication_ms, row.copy_ms)))
        for row in outside(capture)
    ]


FOUR = ("computing", "communication", "exposed", "copy")
UNLAUNCHED = [
    step(7, 1000, 1100),
    launch(1005, 1),
    launch(1006, 2),
    kernel(1002, 1060, 900),
    kernel(1060, 1100, 1),
    reduce(1100, 1120, 2),
]


def test_a_kernel_without_its_launch_belongs_to_no_step_where_others_have_theirs(tmp_path):
    capture = captured(tmp_path, *UNLAUNCHED)
    assert parts(capture, *FOUR) == [(40, 20, 20, 0)]
    assert left(capture) == [(1, 58, 0, 0)]


@pytest.mark.parametrize("cat", ["gpu_memcpy", "gpu_memset"])
def test_so_do_copies_and_fills(tmp_path, cat):
    capture = captured(
        tmp_path, step(7, 1000, 1100), launch(1005, 1), copy(1002, 1060, 900, cat), kernel(1060, 1100, 1)
    )
    assert (parts(capture, *FOUR), left(capture)) == ([(40, 0, 0, 0)], [(1, 0, 0, 58)])


def test_without_any_launch_a_kernel_belongs_to_the_step_it_starts_in(tmp_path):
    events = [step(1, 0, 100), kernel(10, 90, 1), launch(95, 9, "cudaDeviceSynchronize")]
    assert parts(captured(tmp_path, *events), "computing") == [(80,)]


def test_the_kernels_of_a_graph_share_its_launch(tmp_path):
    events = [step(1, 0, 100), step(2, 100, 200), launch(90, 1, "cudaGraphLaunch"), launch(110, 2, "cudaGraphLaunch")]
    events += [kernel(start, start + 10, 1) for start in (95, 105, 115)]
    events += [kernel(start, start + 10, 2) for start in (130, 140)]
    capture = captured(tmp_path, *events)
    assert capture.kernels["step"].tolist() == [1, 1, 1, 2, 2]
    # The host ran ahead: step 2 begins on the device when the graph of step 1 is through.
    assert parts(capture, "stage", "computing") == [(125, 30), (75, 20)]


TWO_STEPS = [step(1, 0, 100), step(2, 100, 200), launch(5, 1), launch(6, 2), launch(105, 3)]
TWO_KERNELS = [kernel(10, 90, 1), kernel(110, 190, 3)]


def test_a_collective_that_outlasts_its_step_is_split_by_time(tmp_path):
    capture = captured(tmp_path, *TWO_STEPS, *TWO_KERNELS, reduce(90, 160, 2))
    columns = ("stage", "computing", "communication", "exposed", "overlapped", "free")
    assert parts(capture, *columns) == [(100, 80, 10, 10, 0, 10), (100, 80, 60, 10, 50, 10)]
    assert left(capture) == []


def test_a_copy_that_outlasts_the_last_step_is_outside_from_there(tmp_path):
    capture = captured(tmp_path, *TWO_STEPS, *TWO_KERNELS, copy(90, 230, 2))
    assert parts(capture, "stage", "copy") == [(100, 10), (100, 100)]
    assert left(capture) == [(0, 0, 0, 30)]


@pytest.mark.parametrize("spanning", [reduce, copy])
def test_a_kernel_may_span_three_steps(tmp_path, spanning):
    events = [step(number, 100 * number, 100 * number + 100) for number in (0, 1, 2)]
    events += [launch(5, 1), launch(105, 2), launch(205, 3), launch(6, 4)]
    events += [kernel(10, 90, 1), kernel(110, 190, 2), kernel(210, 290, 3), spanning(50, 330, 4)]
    capture = captured(tmp_path, *events)
    part = "communication" if spanning is reduce else "copy"
    assert parts(capture, "stage", part) == [(100, 50), (100, 100), (100, 100)]
    assert left(capture) == [(0, 0, 30, 0) if spanning is reduce else (0, 0, 0, 30)]


def test_a_computing_kernel_on_a_second_stream_is_split_too(tmp_path):
    capture = captured(tmp_path, *TWO_STEPS, *TWO_KERNELS, kernel(50, 150, 2, "side", stream=9))
    assert parts(capture, "stage", "computing") == [(100, 90), (100, 90)]


def test_between_steps_a_kernel_runs_on_for_its_own_and_others_are_outside(tmp_path):
    events = [step(1, 0, 100), step(2, 300, 400), launch(5, 1), launch(6, 2), launch(150, 3), launch(305, 4)]
    events += [kernel(10, 90, 1), reduce(90, 160, 2), kernel(200, 230, 3), kernel(310, 390, 4)]
    capture = captured(tmp_path, *events)
    assert parts(capture, "stage", *FOUR) == [(160, 80, 70, 70, 0), (100, 80, 0, 0, 0)]
    assert left(capture) == [(1, 30, 0, 0)]


def test_a_kernel_before_the_first_step_is_outside_even_where_it_runs_on(tmp_path):
    events = [launch(50, 1), kernel(60, 130, 1), step(1, 100, 200), launch(110, 2), kernel(130, 190, 2)]
    capture = captured(tmp_path, *events)
    assert (parts(capture, "stage", "computing"), left(capture)) == ([(100, 60)], [(1, 70, 0, 0)])


def test_where_annotations_overlap_the_later_step_begins_with_its_own(tmp_path):
    events = [step(1, 0, 150), step(2, 100, 200), launch(5, 1), launch(120, 2), kernel(10, 90, 1), kernel(130, 190, 2)]
    capture = captured(tmp_path, *events)
    assert parts(capture, "stage", "computing") == [(100, 80), (100, 60)]
    (found,) = step_findings(capture, decompose(capture), 1)
    assert found.text == "annotated steps overlap by up to 0.050 ms: each is counted up to where the next begins"


def test_any_annotation_that_counts_steps_has_the_same_boundaries(tmp_path):
    named = [step(1, 0, 100, "denoise_step "), step(2, 100, 200, "denoise_step ")]
    capture = captured(tmp_path, *named, *TWO_STEPS[2:], *TWO_KERNELS, reduce(90, 160, 2))
    assert parts(capture, "communication", "exposed") == [(10, 10), (60, 10)]


def test_a_capture_whose_every_kernel_is_outside_is_refused(tmp_path):
    capture = captured(tmp_path, step(7, 1000, 1100), launch(1005, 1), kernel(1010, 1020, 8), kernel(1020, 1030, 9))
    with pytest.raises(InputError, match="all 2 kernels are outside the annotated steps"):
        decompose(capture)
    assert left(capture) == [(2, 20, 0, 0)]
    assert attribute_directory(tmp_path, AttributionOptions()).status is AttributionStatus.REFUSED
    (found,) = collectives(capture, layers=4).ranks
    assert (found.steps, found.families) == (0, ())


def test_calls_per_layer_count_the_steps_only(tmp_path):
    starts = {100: 500, 101: 600, 0: 1010, 1: 1110, 2: 1210, 3: 1310}
    events = [step(7, 1000, 2000)]
    for number, start in starts.items():
        events += [launch(start - 5, number), reduce(start, start + 20, number)]
    found = collectives(captured(tmp_path, *events), layers=4)
    ((family,), steps) = (found.ranks[0].families, found.ranks[0].steps)
    assert (family.calls, family.calls_per_layer, family.outside_calls, steps) == (4, 1.0, 2, 1)
    assert (family.sum_ms, family.outside_ms) == (0.08, 0.04)
    assert reconcile(found, layers=4) == []


def test_a_family_that_only_runs_outside_the_steps_is_shown_with_its_calls():
    rows = [collective(0, 5, "broadcast", step=OUTSIDE), collective(10, 20), compute(20, 30)]
    ((first, second),) = [one.families for one in collectives(capture_of(rows), layers=1).ranks]
    assert (first.family, first.calls, first.outside_calls) == ("alltoall", 1, 0)
    assert (second.family, second.calls, second.outside_calls, second.outside_ms) == ("broadcast", 0, 1, 0.005)


def test_ranks_with_different_numbers_of_steps_are_each_counted_by_their_own():
    rows = [collective(k, k + 1, step=1 + k // 4) for k in range(8)] + [collective(k, k + 1, rank=1) for k in range(4)]
    found = collectives(capture_of(rows), layers=4)
    assert [family.calls_per_layer for one in found.ranks for family in one.families] == [1.0, 1.0]
    assert reconcile(found, layers=4) == []


def table(*rows: dict[str, int]) -> pd.DataFrame:
    return pd.DataFrame([{"rank": 0, "step": 1, **dict.fromkeys(STEP_COLUMNS[2:], 0), **row} for row in rows])


GOOD = {"stage_ns": 50 * MS, "computing_ns": 40 * MS, "free_ns": 10 * MS}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({**GOOD, "stage_ns": 60 * MS}, "does not hold"),
        ({**GOOD, "communication_ns": 9 * MS}, "does not hold"),
        ({**GOOD, "stage_ns": -30 * MS, "free_ns": -70 * MS}, "stage is negative"),
        ({**GOOD, "exposed_ns": 5 * MS, "overlapped_ns": -5 * MS, "free_ns": 5 * MS}, "overlapped is negative"),
    ],
)
def test_a_row_of_a_step_table_that_breaks_an_identity_is_a_finding_and_not_a_table(bad, text):
    kernels = [compute(0, 10), compute(0, 10, step=2)]
    capture = capture_of(kernels, table(bad, {**GOOD, "step": 2}))
    found = decompose(capture)
    assert found[["step", "stage_ns", "source"]].values.tolist() == [
        [2, 50 * MS, "step table"],
        [1, 10_000, "kernels"],
    ]
    findings = step_findings(capture, found, choose_step(found).step)
    assert any(one.kind == "identity" and text in one.text and "not used" in one.text for one in findings)


def test_a_broken_step_table_without_kernels_is_refused():
    capture = capture_of([compute(0, 10)], table({**GOOD, "stage_ns": 60 * MS}))
    with pytest.raises(InputError, match="no row of the step table adds up"):
        decompose(replace(capture, kernels=capture.kernels.iloc[:0]))


def counted(kernels: list[Event], windows: dict[int, tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """Stage, computing, communication, exposed and copies of each step, by asking of every µs whose it is."""
    owned = [one for one in kernels if one["step"] != OUTSIDE]
    steps = sorted(number for number in windows if any(one["step"] == number for one in owned))
    streams = {one["stream"] for one in owned if one["kind"] == "compute"}
    busy = {
        stream: sum(end_of(one) - one["ts"] for one in owned if one["stream"] == stream and one["kind"] == "compute")
        for stream in streams
    }
    if len(set(busy.values())) < len(busy):
        return {}  # either may be the compute stream
    main = max(sorted(busy), key=lambda stream: busy[stream], default=None)
    begins: dict[int, int] = {}
    latest = 0
    for index, number in enumerate(steps):
        mine = [one for one in owned if one["step"] == number]
        before = [one for one in owned if one["step"] in steps[:index]]
        at = windows[number][0]
        ahead = max((end_of(one) for one in before if one["stream"] == main and one["kind"] == "compute"), default=at)
        if ahead > at:
            while at < ahead or (
                any(one["ts"] > at for one in mine)
                and all(one["ts"] > at for one in mine)
                and any(end_of(one) > at for one in before)
            ):
                at += 1
            computing = [one for one in mine if one["kind"] == "compute"] or mine
            at = max(windows[number][0], min(at, *(one["ts"] for one in computing), at))
        latest = begins[number] = max(at, latest)
    found = {}
    for index, number in enumerate(steps):
        own_end = max(windows[number][1], *(end_of(one) for one in owned if one["step"] == number), begins[number])
        end = min(own_end, begins[steps[index + 1]]) if index + 1 < len(steps) else own_end
        at = range(begins[number], end)
        running = [{one["kind"] for one in owned if one["ts"] <= t < end_of(one)} for t in at]
        found[number] = (
            len(running),
            sum("compute" in kinds for kinds in running),
            sum("reduce" in kinds for kinds in running),
            sum("reduce" in kinds and "compute" not in kinds for kinds in running),
            sum("copy" in kinds for kinds in running),
        )
    return found


def end_of(one: Event) -> int:
    return one["ts"] + one["dur"]  # type: ignore[operator,return-value]


def drawn(seed: int) -> Iterable[Event]:
    """Annotated steps with gaps, launches anywhere, and kernels that run behind them for up to several steps."""
    draw = random.Random(seed)
    at = draw.randrange(30)
    for number in range(draw.randrange(1, 5)):
        length = draw.randrange(5, 60)
        yield step(number, at, at + length)
        at += length + draw.choice((0, 0, draw.randrange(30)))
    behind = draw.choice((5, 40, 150))
    free = dict.fromkeys((7, 9, 20, 21), 0)
    for number, when in enumerate(sorted(draw.randrange(at + 20) for _ in range(draw.randrange(1, 25)))):
        if draw.random() < 0.85:
            yield launch(when, number)
        make, stream = draw.choice(((kernel, 7), (kernel, 7), (kernel, 9), (reduce, 20), (copy, 21)))
        start = max(when + draw.randrange(1, behind), free[stream])
        free[stream] = end = start + draw.randrange(1, draw.choice((10, 80)))
        yield make(start, end, number, **({"stream": stream} if make is kernel else {}))


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 200, 100)], ids=str)
def test_random_traces_agree_with_counting_every_microsecond(tmp_path, seeds):
    compared = 0
    for seed in seeds:
        events = list(drawn(seed))
        windows = {
            int(one["name"].split("#")[1]): (one["ts"], end_of(one)) for one in events if "Step#" in str(one["name"])
        }
        launched = {one["args"]["correlation"]: one["ts"] for one in events if one["cat"] == "cuda_runtime"}
        kernels = [one for one in events if one["cat"] not in ("cuda_runtime", "user_annotation")]
        for one in kernels:
            time = launched.get(one["args"]["correlation"], -1) if launched else one["ts"]
            step_of = [number for number, (begin, end) in windows.items() if begin <= time < end]
            kinds = {20: "reduce", 21: "copy"}
            one |= {"step": step_of[0] if step_of else OUTSIDE, "stream": one["tid"]}
            one["kind"] = kinds.get(one["tid"], "compute")
        if not any(one["cat"] == "kernel" for one in kernels):
            continue
        capture = captured(tmp_path, *events)
        expected = counted(kernels, windows)
        if not expected:
            continue
        compared += 1
        found = dict(zip(capture.step_ids, parts(capture, "stage", *FOUR), strict=True))
        assert found == expected, seed
        ids = [row.kernels for row in outside(capture)]
        assert sum(ids) == sum(one["step"] == OUTSIDE for one in kernels), seed
    assert compared > 50


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not on this machine")
@pytest.mark.parametrize(
    ("case", "columns", "steps", "beside"),
    [
        ("unlaunched", ("computing",), [(40,)], [(1, 58, 0, 0)]),
        ("outlasts-collective", ("communication", "exposed", "overlapped"), [(10, 10, 0), (60, 10, 50)], []),
        ("outlasts-copy", ("stage", "copy"), [(100, 10), (100, 100)], [(0, 0, 0, 30)]),
        ("outside-steps", ("communication",), [(80,)], [(2, 0, 40, 0)]),
    ],
)
def test_the_cases(case, columns, steps, beside):
    capture = load_capture(CASES / case)
    assert (parts(capture, *columns), left(capture)) == (steps, beside)


def test_collectives_outside_the_steps_only_are_no_collective_of_the_steps():
    rows = [collective(0, 5, step=OUTSIDE), compute(20, 30)]
    assert collectives_words(collectives(capture_of(rows)).ranks[0].families) == "no collective ran in the steps"
