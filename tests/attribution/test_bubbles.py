"""Gaps of the compute stream: three tests, and splits that are refused rather than guessed."""

from __future__ import annotations

import pytest
from attribution_tables import attention, capture_of, collective, compute

from anchormatrix.attribution.bubbles import BubbleOptions, bubbles
from anchormatrix.attribution.reading import waits_words
from anchormatrix.errors import InputError


def one(rows, **options):
    return bubbles(capture_of(rows), 1, BubbleOptions(**options))[0]


def test_gaps_lie_between_the_first_and_the_last_compute_kernel():
    found = one([collective(0, 50), compute(50, 60), compute(90, 100), collective(100, 150)])
    assert (found.span_ms, found.busy_ms, found.gap_ms) == (0.05, 0.02, 0.03)


def test_communication_behind_the_last_compute_kernel_is_not_said_to_be_no_wait():
    found = one([compute(0, 100), collective(100, 200)])
    assert waits_words(found) == "the compute stream has no gap between its first and its last kernel of a step"


def test_only_compute_kernels_fill_the_compute_stream():
    """An AI-CPU collective listed on the same stream, and AI-CPU work there, leave the gap a gap."""
    rows = [
        compute(0, 10),
        collective(10, 30, core="ai_cpu", stream="16"),
        compute(30, 35, core="ai_cpu"),
        compute(40, 50),
    ]
    found = one(rows)
    assert (found.gap_ms, found.gap_with_collective_ms, found.gap_empty_ms) == (0.03, 0.02, 0.005)


@pytest.mark.parametrize(("end", "is_released"), [(900, True), (1000, True), (800, False), (1099, True), (1200, False)])
def test_a_gap_is_released_by_the_collective_that_ends_with_it(end, is_released):
    """The gap ends at 1000 µs; the tolerance is 100 µs. Running beside the gap is not enough."""
    found = one([compute(0, 100), collective(100, end), compute(1000, 1300)])
    assert found.gap_released_ms == (0.9 if is_released else 0)
    assert found.gap_with_collective_ms > 0


def test_a_gap_in_which_no_collective_ran_waited_for_none():
    found = one([compute(0, 100), compute(150, 200), collective(150, 160), compute(500, 600)])
    assert found.gap_released_ms == 0


def test_the_tolerance_can_be_set():
    rows = [compute(0, 100), collective(100, 950), compute(1000, 1300)]
    assert one(rows, release_ns=40_000).gap_released_ms == 0
    assert one(rows, release_ns=50_000).gap_released_ms == 0.9


def test_exposed_families_and_their_overlap_with_attention():
    rows = [
        compute(0, 10),
        collective(10, 20),
        attention(20, 40),
        collective(30, 50, "allGather"),
        compute(50, 60),
    ]
    groups = {
        group.group: (group.exposed_ms, group.exposed_share, group.overlap_attention_ms) for group in one(rows).groups
    }
    assert groups == {"alltoall:445": (0.01, 1, 0), "allGather:445": (0.01, 0.5, 0.01)}


def layer(at: int) -> list[dict[str, object]]:
    """q, k, v at +0 … +30, attention +32 … +60, output +60 … +70, compute +70 … +100."""
    return [
        *(collective(at + 10 * k, at + 10 * k + 10) for k in range(3)),
        attention(at + 32, at + 60),
        collective(at + 60, at + 70),
        compute(at + 70, at + 100),
    ]


LAYERS = [compute(0, 5), *layer(5), *layer(105)]


def test_forward_and_reverse_calls_of_a_layer_are_told_apart_by_count():
    found = one(LAYERS, layers=2, group_split=3)
    assert [(group.group, group.calls, group.total_ms) for group in found.groups] == [
        ("alltoall:445 forward", 6, 0.06),
        ("alltoall:445 reverse", 2, 0.02),
    ]
    assert found.findings == ()


def test_a_count_that_does_not_divide_by_the_layers_is_refused_and_said():
    found = one([*LAYERS, collective(210, 220)], layers=2, group_split=3)
    assert [group.group for group in found.groups] == ["alltoall:445"]
    assert "9 calls do not divide by 2 layers, so no split" in found.findings[0].text


@pytest.mark.parametrize(("options", "why"), [({"group_split": 3}, "--layers"), ({"layers": 2, "group_split": 4}, "4")])
def test_a_split_that_makes_no_sense_is_refused(options, why):
    found = one(LAYERS, **options)
    assert why in found.findings[0].text
    assert [group.group for group in found.groups] == ["alltoall:445"]


def test_the_lag_is_from_the_end_of_an_attention_kernels_own_input():
    assert one(LAYERS, layers=2, group_split=3).producer_lag_ms.median == 0.002
    assert (
        one(LAYERS).producer_lag_ms.median == 0.002
    )  # also without a split: the calls before each attention are the same


def test_communication_that_runs_ahead_shows_as_a_large_lag():
    rows = [collective(0, 10), compute(10, 400), attention(400, 420), collective(420, 430), compute(430, 440)]
    found = one(rows)
    assert (found.producer_lag_ms.median, found.producer_lag_ms.within_100us_share) == (0.39, 0.0)


def test_in_a_ring_the_first_turn_waits_for_nothing():
    """Turn t works on what call t − 1 brought; three turns and two calls per layer."""
    rows = [
        attention(0, 100),
        collective(0, 60, "batchSendRecv"),
        attention(100, 200),
        collective(60, 130, "batchSendRecv"),
        attention(200, 300),
    ]
    assert one(rows).producer_lag_ms.median == 0.055  # of 40 and 70 µs


def test_calls_that_cannot_be_paired_give_no_lag_and_say_why():
    found = one([attention(0, 10), *(collective(k, k + 1) for k in (11, 12, 13)), attention(20, 30)])
    assert found.producer_lag_ms.median is None
    assert "3 calls cannot be paired with 2 attention kernels" in found.findings[0].text


def test_three_chunks_show_in_which_order_their_calls_were_issued():
    blocked = [compute(0, 5), *(collective(5 + 10 * k, 15 + 10 * k) for k in range(3))]
    blocked += [attention(15, 55), attention(55, 95), attention(95, 135)]
    blocked += [collective(35 + 20, 65), collective(95, 105), collective(135, 145), compute(145, 150)]
    found = one(blocked, layers=1, group_split=3)
    assert [(group.group, group.total_ms) for group in found.groups] == [
        ("alltoall:445 forward", 0.03),
        ("alltoall:445 reverse", 0.03),
    ]
    assert found.groups[0].exposed_ms == 0.01  # only the first call is waited for
    assert found.findings == ()


def test_pipelined_calls_are_recognised_by_the_reverse_call_that_waits_for_its_attention():
    rows = [compute(0, 5), collective(5, 15), collective(15, 25), attention(15, 55), collective(55, 68)]
    rows += [collective(68, 78), attention(55, 95), collective(95, 108), attention(95, 135), collective(135, 148)]
    found = one([*rows, compute(148, 150)], layers=1, group_split=3)
    assert [(group.group, group.total_ms) for group in found.groups] == [
        ("alltoall:445 forward", 0.03),
        ("alltoall:445 reverse", 0.039),
    ]


def test_when_the_times_fit_both_orders_no_split_is_guessed():
    rows = [compute(0, 5), *(collective(5 + 10 * k, 15 + 10 * k) for k in range(6))]
    rows += [attention(300 + 50 * k, 340 + 50 * k) for k in range(3)]
    found = one(rows, layers=1, group_split=3)
    assert [group.group for group in found.groups] == ["alltoall:445"]
    assert "--issue-order" in found.findings[0].text


def test_an_unknown_collective_lists_what_there_is():
    with pytest.raises(InputError, match=r"no collective 'allReduce' in this step; expected one of: alltoall:445"):
        one(LAYERS, collective="allReduce")


def test_a_step_without_compute_is_refused():
    with pytest.raises(InputError, match="no compute kernel in this step"):
        one([collective(0, 5)])
