"""A form is in effect when the collectives it must cause were counted."""

from __future__ import annotations

import pytest
from attribution_tables import capture_of, collective, compute

from anchormatrix.attribution.effect import check_effect
from anchormatrix.records.form import parse_form


def checked(form: str | None, *rows, ranks: int = 2, **options):
    every = [row | {"rank": rank} for rank in range(ranks) for row in (compute(0, 100), *rows)]
    return check_effect(capture_of(every), parse_form(form) if form else None, **options)


@pytest.mark.parametrize(
    ("form", "families"),
    [
        ("tp2", ["allReduce"]),
        ("usp2", ["alltoall"]),
        ("ring2", ["batchSendRecv"]),
        ("ag2", ["allGather"]),
        ("cfg2", ["allGather"]),
        ("pp2", ["send", "receive"]),
        ("usp2", ["sendRecv"]),  # how NCCL shows an all-to-all when the trace says no more
    ],
)
def test_a_degree_is_proved_by_its_collective(form, families):
    found = checked(form, *(collective(10 * k, 10 * k + 5, family) for k, family in enumerate(families)))
    assert found.ok
    assert form in [check.name for check in found.checks]


@pytest.mark.parametrize("form", ["tp2", "usp2", "ring2", "ag2", "cfg2", "pp2"])
def test_a_degree_without_its_collective_is_not_in_effect(form):
    found = checked(form)
    assert [check.name for check in found.failures] == [form]


def test_all_gather_without_any_all_to_all_means_that_ulysses_is_not_active():
    (failure,) = checked("usp2", collective(0, 5, "allGather")).failures
    assert failure.text == "ranks 0, 1: all-gather without any all-to-all, Ulysses is not active"


def test_the_unequal_all_to_all_is_found():
    (failure,) = checked("usp2", collective(0, 5, "alltoallv")).failures
    assert failure.name == "equal all-to-all"
    assert "1 alltoallv calls per rank where alltoall is expected" in failure.text


def test_a_single_gather_of_the_output_does_not_prove_all_gather_kv():
    assert checked("ag2", collective(0, 5, "allGather")).ok
    (failure,) = checked("ag2", collective(0, 5, "allGather"), layers=40).failures
    assert "allGather ran fewer than 40 times" in failure.text


def test_every_rank_must_show_it():
    rows = [compute(0, 9), compute(0, 9, rank=1), collective(0, 5)]
    (failure,) = check_effect(capture_of(rows), parse_form("usp2")).failures
    assert failure.text.startswith("rank 1:")


def test_the_number_of_ranks_must_be_the_forms():
    found = checked("usp4", collective(0, 5))
    assert [check.name for check in found.failures] == ["ranks"]


@pytest.mark.parametrize(("unmasked", "ok"), [(1, True), (2, False)])
def test_chunking_is_proved_by_more_calls_than_without_it(unmasked, ok):
    calls = [collective(0, 5), collective(5, 9)]
    assert checked("usp2+mask2", *calls, unmasked_calls=unmasked).ok is ok


def test_compute_on_the_masking_stream_fails_under_any_form():
    rows = [collective(0, 5), compute(5, 8, "Transpose", stream="31")]
    assert [check.name for check in checked(None, *rows).failures] == ["streams"]


def test_a_communication_row_that_nobody_recognises_is_shown():
    (failure,) = checked(None, collective(0, 5, "unrecognised", name="hcom_novel__1_2"), ranks=1).failures
    assert "as 'hcom_novel__1_2'" in failure.text


def test_an_engine_whose_profiler_writes_one_rank_is_held_to_that_one():
    found = checked("usp2", collective(0, 5), ranks=1, captured_ranks=1)
    assert found.ok
    (ranks,) = [check for check in found.checks if check.name == "ranks"]
    assert ranks.text == "rank 0 of 2 was captured: the engine's profiler writes no other"
    assert not checked("usp2", collective(0, 5), ranks=1).ok
    assert not checked("usp4", collective(0, 5), ranks=2, captured_ranks=1).ok
