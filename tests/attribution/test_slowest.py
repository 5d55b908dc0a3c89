"""The slowest rank of a step, and ranks that share its work unevenly."""

from __future__ import annotations

import pandas as pd
import pytest
from attribution_tables import capture_of, compute

from anchormatrix.attribution.reading import readings
from anchormatrix.attribution.slowest import check_imbalance, equal_to_slowest, slowest, slowest_rank
from anchormatrix.attribution.steps import choose_step, step_rows
from anchormatrix.attribution.summary import AttributionOptions, attribute
from anchormatrix.captures.table import STEP_COLUMNS
from anchormatrix.records.attribution import Collectives

US = 1_000


def table_of(*ranks: tuple[int, int], step: int = 1) -> pd.DataFrame:
    """One step: stage and computing in µs of each rank; the rest is exposed communication."""
    rows = []
    for rank, (stage, computing) in enumerate(ranks):
        times = {"stage_ns": stage, "computing_ns": computing, "exposed_ns": stage - computing}
        times["communication_ns"] = stage - computing
        rows.append(dict.fromkeys(STEP_COLUMNS, 0) | {key: US * value for key, value in times.items()})
        rows[-1] |= {"rank": rank, "step": step}
    return pd.DataFrame(rows).assign(source="kernels")


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        ([(546_191, 400_000), (546_000, 525_000)], 1),  # 0.035 % apart: the rank that waits is not the slowest
        ([(100_000, 60_000)] * 7 + [(120_000, 50_000)], 7),  # really slower, even though it computes less
        ([(100_000, 60_000)] * 8, 0),
        ([(100_000, 60_000), (99_000, 61_000)], 1),  # one percent: equal
        ([(100_000, 60_000), (98_999, 61_000)], 0),  # beyond it: not equal
        ([(100_000, 60_000), (100_500, 60_000)], 1),  # equal in all: the longer one
        ([(100_000, 60_000)], 0),
        ([(0, 0), (0, 0)], 0),
    ],
)
def test_ranks_within_one_percent_are_equal_and_the_one_that_computes_most_is_shown(ranks, shown):
    table = table_of(*ranks)
    row = slowest_rank(step_rows(table))
    assert row is not None
    assert (slowest(table)["rank"], row.rank) == (shown, shown)


def test_no_rank_is_slowest_of_none():
    assert slowest_rank(()) is None


def test_ranks_that_share_their_work_unevenly_are_a_finding():
    (found,) = check_imbalance(table_of((546_191, 400_000), (546_000, 525_000)))
    assert (found.kind, found.ranks) == ("imbalance", (1, 0))
    assert "of 546 ms rank 1 computes 525 ms and rank 0 400 ms" in found.text
    assert check_imbalance(table_of((100_000, 60_000), (100_000, 55_000))) == []
    assert len(check_imbalance(table_of((100_000, 60_000), (100_000, 54_999)))) == 1
    assert check_imbalance(table_of((100_000, 90_000), (50_000, 20_000))) == []  # not equal: a straggler, if anything


def test_the_sentence_gives_both_ranks():
    table = table_of((546_191, 400_000), (546_000, 525_000))
    (step, _) = readings(equal_to_slowest(table), None, Collectives((), 0, 0, {}, ()), (), ())
    assert step.text.startswith(
        "The slowest rank, 1, computes 96.2%, waits for communication 3.8%, idles 0.0% of its captured step of 546.0 ms"
        " (of 2 ranks equal within 1 % the one that computes most; rank 0, of 546.2 ms, computes 73.2%, waits for"
    )


def test_ranks_with_different_steps_are_compared_in_one_they_share():
    table = pd.concat([table_of((100, 60), (101, 50), step=1), table_of((400, 60), step=2)])
    assert choose_step(table).step == 1
    assert slowest(table[table["step"] == 1])["rank"] == 0


def test_the_attribution_shows_the_rank_that_is_waited_for():
    steps = table_of((546_191, 400_000), (546_000, 525_000)).drop(columns="source")
    found = attribute(
        capture_of([compute(0, 10, rank=0), compute(0, 10, rank=1)], steps), AttributionOptions(unprofiled_step_s=0.5)
    )
    assert found.steps is not None
    assert (found.steps.slowest_rank, found.steps.exposed_share) == (1, 0.042)
    assert "imbalance" in {finding.kind for finding in found.findings}
