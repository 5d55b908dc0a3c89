"""The steady state is found by measurement; the first request never belongs to it."""

from __future__ import annotations

from anchormatrix.measure.ramp import first_steady, spread_pct


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
