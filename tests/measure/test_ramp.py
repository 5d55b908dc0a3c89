"""The steady state is found by measurement; the first request never belongs to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.measure.ramp import first_steady
from anchormatrix.records.cells import spread_pct


def test_the_first_request_is_never_steady() -> None:
    assert first_steady([3.0, 3.0, 3.0], 3) == 1


def test_fast_requests_at_the_start_are_the_ramp() -> None:
    assert first_steady([2.60, 2.90, 3.02, 3.02, 3.03], 3) == 2


def test_a_plateau_on_the_ramp_is_not_the_steady_state() -> None:
    assert first_steady([2.60, 2.61, 2.62, 3.00, 3.01], 3) == 3


def test_requests_that_never_agree_have_no_steady_state() -> None:
    assert first_steady([1.0, 1.2, 1.0, 1.2], 3) is None


def test_two_requests_are_too_few() -> None:
    assert first_steady([3.0, 3.0], 3) is None


def test_tiers_are_compared_only_within_themselves() -> None:
    assert first_steady([2.7, 3.0, 3.3, 3.0, 3.3], 3, [4, 4, 10, 4, 10]) == 1


def test_spread_is_largest_minus_smallest_over_the_median() -> None:
    assert spread_pct([9.0, 10.0, 11.0]) == 20.0
    assert spread_pct([]) == 0.0


@given(
    st.lists(st.tuples(st.sampled_from([4, 10]), st.sampled_from([1.0, 1.01, 1.02, 1.03, 1.05, 1.2])), max_size=12),
    st.sampled_from([0.5, 2.0, 3.0, 10.0]),
)
def test_every_later_request_of_a_kind_agrees_and_no_earlier_start_does(requests, tolerance) -> None:
    kinds, values = [kind for kind, _ in requests], [value for _, value in requests]

    def settled(start: int) -> bool:
        tails = [[v for k, v in requests[start:] if k == kind] for kind in (4, 10)]
        return all(spread_pct(tail) <= tolerance for tail in tails)

    starts = [start for start in range(1, len(requests) - 1) if settled(start)]
    assert first_steady(values, tolerance, kinds) == (starts[0] if starts else None)


def test_a_log_of_many_thousand_requests_is_judged_at_once() -> None:
    values = [1.0 + (index % 7) / 100 for index in range(60_000)]
    assert first_steady(values, 3) == 59_997
