"""Step decomposition, its identities, and the difference of two steps."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from attribution_tables import capture_of, collective, compute

from anchormatrix.attribution.differences import delta
from anchormatrix.attribution.slowest import check_stragglers, slowest, slowest_rank
from anchormatrix.attribution.steps import (
    check_agreement,
    check_identities,
    choose_step,
    decompose,
    decompose_kernels,
    step_findings,
    step_rows,
    whole_trace,
)
from anchormatrix.captures.table import STEP_COLUMNS
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import StageDelta

MS = 1_000_000


def table_of(*rows: dict[str, int]) -> pd.DataFrame:
    full = [{"rank": 0, "step": 1, **dict.fromkeys(STEP_COLUMNS[2:], 0), **row, "source": "step table"} for row in rows]
    return pd.DataFrame(full)


def step(stage: int, computing: int, exposed: int, free: int, *, overlapped: int = 0, **other: int) -> dict[str, int]:
    times = {"stage": stage, "computing": computing, "exposed": exposed, "free": free, "overlapped": overlapped}
    found = {f"{key}_ns": value * MS for key, value in times.items()}
    return found | {"communication_ns": (exposed + overlapped) * MS} | other


def test_parts_of_a_step_from_its_kernels():
    #  compute     0────10      15──20
    #  alltoall       8──────14
    row = decompose_kernels(capture_of([compute(0, 10), collective(8, 14), compute(15, 20)])).iloc[0]
    assert (row["computing_ns"], row["exposed_ns"], row["overlapped_ns"]) == (15_000, 4_000, 2_000)
    assert (row["communication_ns"], row["free_ns"], row["stage_ns"]) == (6_000, 1_000, 20_000)


def test_concurrent_collectives_count_once_and_ai_cpu_work_is_no_compute():
    rows = [compute(0, 10), collective(10, 20), collective(12, 18, "allGather"), compute(20, 30, core="ai_cpu")]
    row = decompose_kernels(capture_of(rows)).iloc[0]
    assert (row["communication_ns"], row["computing_ns"], row["free_ns"]) == (10_000, 10_000, 10_000)


def test_an_ai_cpu_collective_is_communication_wherever_it_is_listed():
    rows = [compute(0, 10), collective(10, 20, core="ai_cpu", stream="16"), compute(20, 30)]
    assert decompose_kernels(capture_of(rows)).iloc[0]["exposed_ns"] == 10_000


def test_kernels_of_two_overlapping_steps_are_not_mixed():
    rows = [compute(0, 10), compute(12, 20), compute(15, 25, step=2), compute(28, 30, step=2)]
    table = decompose_kernels(capture_of(rows))
    assert table[["step", "computing_ns", "stage_ns"]].values.tolist() == [[1, 18_000, 20_000], [2, 12_000, 15_000]]
    (found,) = step_findings(capture_of(rows), decompose(capture_of(rows)), 1)
    assert (found.kind, found.ranks) == ("overlapping_steps", (0,))
    assert found.text == ("steps overlap by up to 0.005 ms: that time is counted in both, each with its own kernels")
    after = [compute(0, 10), compute(12, 20), compute(21, 25, step=2), compute(28, 30, step=2)]
    assert step_findings(capture_of(after), decompose(capture_of(after)), 1) == []


def test_an_annotated_step_lasts_as_long_as_its_annotation():
    capture = capture_of([compute(10, 20), compute(45, 130), compute(160, 170, step=2)])
    windows = pd.DataFrame(
        [(0, 1, 0, 100_000), (0, 2, 100_000, 200_000)], columns=["rank", "step", "start_ns", "end_ns"]
    )
    table = decompose_kernels(replace(capture, windows=windows))
    # The first step's last kernel runs on into the second's annotation: the second begins when it ends.
    assert table[["stage_ns", "preparing_ns"]].values.tolist() == [[130_000, 10_000], [70_000, 30_000]]


def test_the_whole_trace_is_split_without_steps():
    capture = capture_of([compute(0, 10), collective(20, 30, step=2)])
    assert whole_trace(capture)[["stage_ns", "computing_ns", "exposed_ns", "free_ns"]].values.tolist() == [
        [30_000, 10_000, 10_000, 10_000]
    ]


def test_a_wait_for_the_stage_before_is_a_bubble_within_exposed_communication():
    row = decompose_kernels(capture_of([compute(0, 10), collective(10, 40, "receive"), compute(40, 50)])).iloc[0]
    assert (row["bubble_ns"], row["exposed_ns"], row["free_ns"]) == (30_000, 30_000, 0)


def test_the_median_step_by_stage_stands_for_the_capture_and_is_named():
    table = table_of(*(step(stage, stage, 0, 0, step=number) for number, stage in enumerate([90, 70, 80])))
    assert choose_step(table).step == 2
    assert choose_step(table).why == "step 2, the median of 3 by Stage"


def test_a_step_that_a_rank_lacks_is_no_candidate():
    table = table_of(step(9, 9, 0, 0), step(9, 9, 0, 0, rank=1), step(5, 5, 0, 0, step=2))
    assert choose_step(table).step == 1
    with pytest.raises(InputError, match="no step was captured on every rank"):
        choose_step(table_of(step(9, 9, 0, 0), step(9, 9, 0, 0, rank=1, step=2)))


def test_the_profilers_table_is_taken_for_the_ranks_it_has():
    steps = table_of(step(50, 30, 15, 5)).drop(columns="source")
    table = decompose(capture_of([compute(0, 10), compute(0, 10, rank=1)], steps))
    assert table[["rank", "stage_ns", "source"]].values.tolist() == [
        [0, 50 * MS, "step table"],
        [1, 10_000, "kernels"],
    ]


@pytest.mark.parametrize("bubble", [0, 4 * MS])
def test_a_stage_closes_with_bubble_inside_or_beside_the_other_parts(bubble):
    inside = table_of(step(50, 30, 15, 5, bubble_ns=bubble))
    beside = table_of(step(54 if bubble else 50, 30, 15, 5, bubble_ns=bubble))
    assert check_identities(inside) == check_identities(beside) == []


def test_broken_identities_are_found_and_the_residual_said():
    (stage,) = check_identities(table_of(step(60, 30, 15, 5)))
    assert "Stage = Computing + exposed + Free does not hold: +10.000 ms" in stage.text
    (communication,) = check_identities(table_of(step(50, 30, 15, 5, communication_ns=16 * MS)))
    assert "Communication = exposed + Overlapped" in communication.text


def test_step_table_and_kernels_are_compared():
    steps = table_of({**step(0, 0, 0, 0), "stage_ns": 20_000, "computing_ns": 15_000, "free_ns": 5_000})
    capture = capture_of([compute(0, 10), compute(15, 20)], steps.drop(columns="source"))
    assert check_agreement(capture) == (0.0, [])
    worse = steps.assign(computing_ns=14_000).drop(columns="source")
    share, (finding,) = check_agreement(replace(capture, steps=worse))
    assert share == pytest.approx(0.05)
    assert finding.ranks == (0,)
    assert check_agreement(replace(capture, steps=None)) == (None, [])


def test_a_straggler_is_the_rank_that_works_longest_not_the_one_that_waits():
    rows = [step(100, 80, 15, 5, rank=rank) for rank in range(3)] + [step(100, 95, 0, 5, rank=3)]
    (found,) = check_stragglers(table_of(*rows))
    assert found.ranks == (3,)
    assert slowest(table_of(*rows))["rank"] == 3  # equal stages: the others wait inside their collectives


def difference(a: pd.DataFrame, b: pd.DataFrame) -> StageDelta:
    first, second = (slowest_rank(step_rows(table)) for table in (a, b))
    assert first is not None
    assert second is not None
    return delta(first, second)


def test_the_difference_of_two_steps_closes():
    found = difference(table_of(step(100, 70, 20, 10)), table_of(step(130, 80, 38, 12)))
    assert (found.stage_ms, found.computing_ms, found.exposed_ms, found.free_ms) == (30, 10, 18, 2)
    assert (found.residual_ms, found.closes) == (0, True)


def test_the_difference_compares_the_slowest_ranks():
    a = table_of(step(100, 70, 20, 10), step(110, 90, 10, 10, rank=1))
    found = difference(a, table_of(step(120, 100, 10, 10)))
    assert (found.ranks, found.stage_ms) == ((1, 0), 10)


def test_a_bubble_beside_the_parts_belongs_to_the_difference_and_one_inside_does_not():
    plain = table_of(step(100, 70, 20, 10))
    beside = difference(plain, table_of(step(115, 70, 20, 10, bubble_ns=15 * MS)))
    inside = difference(plain, table_of(step(115, 70, 35, 10, bubble_ns=15 * MS)))
    assert (beside.bubble_ms, beside.residual_ms) == (15, 0)
    assert (inside.bubble_ms, inside.exposed_ms, inside.residual_ms) == (0, 15, 0)


def test_a_difference_that_does_not_close_says_what_is_left():
    found = difference(table_of(step(100, 70, 20, 10)), table_of(step(130, 70, 20, 10)))
    assert (found.residual_ms, found.closes) == (30, False)


def test_findings_of_several_ranks_with_the_same_text_are_one():
    table = table_of(step(60, 30, 15, 5), step(60, 30, 15, 5, rank=1))
    (found,) = step_findings(capture_of([compute(0, 1)]), table, 1)
    assert found.ranks == (0, 1)
