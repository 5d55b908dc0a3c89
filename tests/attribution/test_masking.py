"""The masking bound: what no schedule exceeds, its inputs, and the warnings when they contradict the capture."""

from __future__ import annotations

import pytest
from attribution_tables import attention, capture_of, collective, compute
from hypothesis import given
from hypothesis import strategies as st
from mask_schedules import violations

from anchormatrix.attribution.hiding import bound, equal_bound, estimate, usable_chunks
from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.steps import decompose
from anchormatrix.errors import InputError


def one(rows, **options):
    capture = capture_of(rows)
    return mask_bounds(capture, decompose(capture), 1, MaskOptions(**options))[0]


@pytest.mark.parametrize(
    ("c", "f", "chunks", "expected"),
    [
        (100, 100, 4, 0.75),  # only one chunk's exchange runs alone
        (100, 400, 7, 6 / 7),
        (100, 80, 4, 0.75),  # attention is a little shorter, and still long enough for three chunks of four
        (100, 50, 4, 0.5),  # all of attention hides something
        (100, 50, 40, 0.5),  # more chunks do not help
        (100, 100, 1, 0.0),
        (100, 0, 5, 0.0),
        (0, 100, 4, 0.0),
    ],
)
def test_the_bound_of_equal_chunks(c, f, chunks, expected):
    assert equal_bound(c, f, chunks) == pytest.approx(expected)


def test_of_ragged_chunks_the_first_way_there_and_the_last_way_back_are_alone():
    assert bound(100, 400, alone=10 + 5) == 0.85
    assert bound(100, 60, alone=10 + 5) == 0.6


def test_the_sources_estimate_is_exceeded_by_a_right_schedule_and_the_bound_is_reached():
    """Two chunks of 1 µs there and 1 µs back, each attended for 1 µs: a1 a2 b1 b2, a2 under the first attention and b1
    under the second, so half of the exchange is hidden."""
    rows = [collective(0, 1), collective(1, 2), attention(1, 2), collective(2, 3), attention(2, 3), collective(3, 4)]
    found = one(rows, layers=1, chunks=2)
    assert (found.under_attention, found.bound, found.achievement) == (0.5, 0.5, 1.0)
    assert found.estimate == estimate(4, 2, 2) == 1 - (2 + 1 + 0.5) / 4  # fill, what is left over, drain of c/4
    assert not any("contradict" in text or "bound is" in text for text in found.warnings)


def test_no_random_schedule_exceeds_the_bound():
    """Ten thousand of them: python tests/support/mask_schedules.py 10000."""
    assert list(violations(40, seed=7)) == []


@given(st.floats(0.1, 1e3), st.floats(0, 1e3), st.integers(1, 64), st.floats(0, 1 / 3))
def test_the_estimate_is_never_above_the_bound(c, f, chunks, drain):
    assert 0 <= estimate(c, f, chunks, drain) <= equal_bound(c, f, chunks) + 1e-9 <= 1


@pytest.mark.parametrize(("asked", "heads", "used"), [(5, 10, 5), (7, 10, 5), (3, 8, 2), (16, 6, 6), (4, None, 4)])
def test_chunks_are_the_largest_divisor_of_the_local_heads(asked, heads, used):
    assert usable_chunks(asked, heads) == used


STEP = [
    compute(0, 10),
    collective(10, 30),
    attention(30, 70),
    collective(40, 60),
    collective(70, 74, "allReduce", communicator="503"),
    compute(74, 80),
]


def test_c_is_the_masked_family_and_f_the_attention_kernels_per_layer():
    found = one(STEP, layers=2, chunks=2, family="alltoall")
    assert (found.family, found.communicator, found.c_total_ms, found.f_total_ms) == ("alltoall", "445", 0.02, 0.02)
    assert (found.c_ms, found.f_ms, found.c_over_f, found.ideal, found.bound) == (0.01, 0.01, 1.0, 0.5, 0.5)
    assert found.measured == pytest.approx(20 / 44, abs=1e-6)  # Overlapped ÷ Communication of the step
    assert found.measured_family == 0.5  # the masked family's own share
    assert (found.under_attention, found.achievement) == (0.5, 1.0)
    assert found.exposed_ms == 0.024


def test_a_family_that_is_not_there_is_refused_and_never_replaced_by_the_steps_total():
    with pytest.raises(
        InputError, match=r"no collective 'allGather' in this step; expected one of: allReduce:503, allto"
    ):
        one(STEP, chunks=2, family="allGather")
    with pytest.raises(InputError, match="no collective on communicator '999'"):
        one(STEP, chunks=2, communicator="999")


def test_the_whole_step_is_taken_only_when_asked_for():
    assert one(STEP, chunks=2, family="step").c_total_ms == 0.044


def test_the_communicator_matters():
    rows = [*STEP, collective(80, 85, communicator="600"), compute(85, 90)]
    assert one(rows, chunks=2, family="alltoall").c_total_ms == 0.04
    assert "same family also runs on alltoall:600" in " ".join(one(rows, chunks=2, family="alltoall").warnings)
    assert one(rows, chunks=2, family="alltoall", communicator="600").c_total_ms == 0.005


def test_a_family_that_is_not_all_communication_says_what_bound_and_measured_speak_of():
    assert one(STEP, chunks=2, layers=2).warnings == (  # 40 of 44 ns
        "alltoall:445 makes up 91% of the communication: the bound speaks of it alone, "
        "the measured share of all communication",
    )


def test_without_attention_kernels_there_is_no_f():
    with pytest.raises(InputError, match="no compute kernel that looks like attention in this step; name it with"):
        one([compute(0, 10), collective(10, 20)], chunks=2)
    assert one([compute(0, 10, "MyKernel"), collective(10, 20)], chunks=2, attention="mykern").f_total_ms == 0.01


def test_an_achievement_above_one_says_what_contradicts_the_capture():
    hidden = [attention(0, 100), collective(10, 20)]
    found = one(hidden, chunks=2)
    assert (found.bound, found.achievement) == (0.5, 2.0)
    assert found.warnings[0] == (
        "attention hides 100% of alltoall and the bound is 50%: the attention kernels (1) are not 2 chunks a layer"
    )
    rows = [collective(0, 10), attention(0, 20), collective(20, 30), attention(20, 40), compute(40, 41)]
    assert one(rows, layers=1, chunks=2).warnings[0] == (
        "attention hides 100% of alltoall and the bound is 50%: attention runs during exchanges that it should wait "
        "for, so alltoall is not the family that brings its input, another collective is mixed in, or two forwards are "
        "in flight"
    )


def test_a_rings_first_turn_needs_no_transfer_so_attention_may_hide_all_of_them():
    rows = [collective(0, 8, "batchSendRecv"), attention(0, 10), attention(10, 20)]
    found = one(rows, layers=1, chunks=2)
    assert (found.bound, found.under_attention, found.achievement) == (1.0, 1.0, 1.0)
    assert "the calls of batchSendRecv are not 2 equal chunks a layer: only attention bounds it" in found.warnings


def test_other_compute_beside_the_exchange_is_hidden_time_but_not_attentions():
    rows = [compute(0, 10), collective(0, 10), attention(10, 20)]
    found = one(rows, layers=1, chunks=1)
    assert (found.measured, found.measured_family, found.under_attention, found.bound) == (1.0, 1.0, 0.0, 0.0)
    assert found.achievement is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chunks": 3, "local_heads": 8}, "3 chunks do not divide 8 local heads; 2 are used"),
        ({"chunks": 1}, "one chunk hides nothing"),
        ({"chunks": 2}, "the number of layers is not known"),
        ({"layers": 1}, "chunks were not given: 1 taken"),
        ({"chunks": 2, "drain_ratio": 0.6}, "outside a quarter to a third"),
        ({"chunks": 2, "family": "allReduce"}, "allReduce:503 makes up 9% of the communication"),
    ],
)
def test_warnings(options, text):
    assert text in " ".join(one(STEP, **options).warnings)


def test_longer_transfers_than_attention_are_said_not_to_gain_from_chunks():
    found = one([collective(0, 60), attention(60, 80), compute(80, 81)], chunks=2)
    assert "c/f is 3.00: attention is too short" in " ".join(found.warnings)


def test_every_rank_has_its_own_bound():
    rows = STEP + [row | {"rank": 1} for row in STEP[:3]] + [compute(90, 99, rank=1)]
    capture = capture_of(rows)
    found = mask_bounds(capture, decompose(capture), 1, MaskOptions(chunks=2))
    assert [(one.rank, one.c_total_ms) for one in found] == [(0, 0.04), (1, 0.02)]
