"""The masking bound: its formula, its inputs, and the warnings when they are wrong."""

from __future__ import annotations

import pytest
from attribution_tables import attention, capture_of, collective, compute
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.attribution.hiding import bound, usable_chunks
from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.steps import decompose
from anchormatrix.errors import InputError


def one(rows, **options):
    capture = capture_of(rows)
    return mask_bounds(capture, decompose(capture), 1, MaskOptions(**options))[0]


@pytest.mark.parametrize(
    ("c", "f", "chunks", "expected"),
    [
        (100, 100, 4, 0.75),  # f ≥ c: only the first chunk is exposed
        (100, 400, 7, 6 / 7),
        (100, 50, 4, 1 - (25 + 3 * 12.5 + 6.25) / 100),  # f < c: fill, what is left over, drain of c/4
        (100, 100, 1, 0.0),
        (100, 0, 5, 0.0),  # nothing to hide behind: never below 0
        (0, 100, 4, 0.0),
    ],
)
def test_the_bound(c, f, chunks, expected):
    assert bound(c, f, chunks) == pytest.approx(expected)


def test_where_transfers_are_longer_more_chunks_hardly_help():
    assert bound(130, 100, 14) - bound(130, 100, 7) < 0.08
    assert bound(130, 130, 14) - bound(130, 130, 7) == pytest.approx(1 / 14)


@given(st.floats(0.1, 1e3), st.floats(0, 1e3), st.integers(1, 64), st.floats(0.25, 1 / 3))
def test_the_bound_is_a_share_and_never_above_the_ideal(c, f, chunks, drain):
    assert 0 <= bound(c, f, chunks, drain) <= 1 - 1 / chunks + 1e-12


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
    assert found.achievement == pytest.approx(20 / 22, abs=1e-6)
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


def test_an_achievement_above_one_says_that_the_inputs_are_wrong():
    found = one([attention(0, 100), collective(10, 20)], chunks=2)
    assert found.achievement == 2.0
    assert any(text.startswith("achievement is 200%: wrong family or communicator") for text in found.warnings)


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
    found = one([collective(0, 30), attention(30, 50), compute(50, 51)], chunks=2)
    assert "c/f is 1.50" in " ".join(found.warnings)


def test_every_rank_has_its_own_bound():
    rows = STEP + [row | {"rank": 1} for row in STEP[:3]] + [compute(90, 99, rank=1)]
    capture = capture_of(rows)
    found = mask_bounds(capture, decompose(capture), 1, MaskOptions(chunks=2))
    assert [(one.rank, one.c_total_ms) for one in found] == [(0, 0.04), (1, 0.02)]
