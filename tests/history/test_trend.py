"""Trend: what is called and what is not, and how often chance is mistaken for a change."""

from __future__ import annotations

import math
import random

import pytest

from anchormatrix.history.trend import MIN_NIGHTS, Change, Judgement, judge_series

QUIET = [2.00, 2.01, 1.99, 2.00, 2.02, 1.98, 2.01, 2.00, 1.99, 2.00, 2.01, 1.99]


def _last(values: list[float], floor_pct: float = 1.0) -> Judgement:
    return judge_series(values, floor_pct=floor_pct)[-1]


def _noisy(generator: random.Random, nights: int, noise: float, shift: float = 0.0) -> list[float]:
    return [2.0 * (1 + shift) * math.exp(generator.gauss(0, noise)) for _ in range(nights)]


def test_nothing_is_said_before_the_level_is_known() -> None:
    assert [j.change for j in judge_series(QUIET[:5], floor_pct=1.0)] == [Change.LEARNING] * MIN_NIGHTS + [Change.NONE]


def test_a_quiet_series_has_no_change() -> None:
    assert {j.change for j in judge_series(QUIET, floor_pct=1.0)} == {Change.LEARNING, Change.NONE}


def test_a_jump_is_called_the_night_it_happens_and_stands_while_it_lasts() -> None:
    first, second = judge_series([*QUIET, 2.2, 2.21], floor_pct=1.0)[-2:]
    assert (first.change, first.new, first.since) == (Change.REGRESSION, True, 12)
    assert first.shift_pct == pytest.approx(10.0, abs=0.3)
    assert first.level_s == pytest.approx(2.0, abs=0.005)
    assert (second.change, second.new, second.since) == (Change.REGRESSION, False, 12)


def test_faster_is_an_improvement() -> None:
    assert _last([*QUIET, 1.8]).change is Change.IMPROVEMENT


def test_one_wild_night_is_over_the_next_night_and_leaves_the_level_as_it_was() -> None:
    wild, after, later = judge_series([*QUIET, 2.6, 2.0, 2.01], floor_pct=1.0)[-3:]
    assert (wild.change, after.change, later.change) == (Change.REGRESSION, Change.BACK, Change.NONE)
    assert later.level_s == pytest.approx(2.0, abs=0.005)


def test_a_change_that_stands_five_nights_is_the_new_level() -> None:
    changes = [j.change for j in judge_series([*QUIET, *(2.2 * v / 2 for v in QUIET)], floor_pct=1.0)][12:]
    assert changes[:5] == [Change.REGRESSION] * 4 + [Change.NEW_LEVEL]
    assert set(changes[5:]) == {Change.NONE}


def test_a_small_lasting_shift_is_found_over_several_nights() -> None:
    slow = [2.04 * v / 2 for v in QUIET[:7]]
    assert Change.REGRESSION in [j.change for j in judge_series([*QUIET, *slow], floor_pct=1.0)]


def test_a_difference_below_the_floor_is_never_called() -> None:
    exact = [2.0, 2.0001, 1.9999, 2.0, 2.0001, 1.9999, 2.0]
    assert _last([*exact, 2.015]).change is Change.NONE
    assert _last([*exact, 2.015], floor_pct=0.5).change is Change.REGRESSION


def test_equal_values_are_no_division_by_zero() -> None:
    assert _last([2.0] * 10).change is Change.NONE
    assert _last([*[2.0] * 10, 2.1]).change is Change.REGRESSION


def test_a_wild_night_among_the_first_does_not_hide_a_later_regression() -> None:
    assert _last([*QUIET[:3], 3.0, *QUIET[4:], 2.2]).change is Change.REGRESSION


@pytest.mark.parametrize("noise", [0.005, 0.01, 0.04])
def test_false_alarms_are_at_most_one_percent_of_series_and_nights(noise: float) -> None:
    generator = random.Random(1)
    judged = [j for _ in range(120) for j in judge_series(_noisy(generator, 30, noise), floor_pct=1.0)]
    nights = [j for j in judged if j.change is not Change.LEARNING]
    alarms = [j for j in nights if j.change in (Change.REGRESSION, Change.IMPROVEMENT)]
    assert len(alarms) <= 0.01 * len(nights)


def test_five_percent_are_found_within_three_nights_at_one_percent_noise() -> None:
    generator, found = random.Random(11), 0
    for _ in range(200):
        values = [*_noisy(generator, 14, 0.01), *_noisy(generator, 3, 0.01, 0.05)]
        found += any(j.change is Change.REGRESSION for j in judge_series(values, floor_pct=1.0)[14:])
    assert found >= 195
