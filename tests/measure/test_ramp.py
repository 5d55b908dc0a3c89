"""The ramp is the fast head of a session; what stands out anywhere else is noise and stays in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.measure.ramp import first_steady, judge_ramp, ramp_inside, warmed_up
from anchormatrix.records.conclusions.cells import spread_pct

IN_TURN = [4, 10, 4, 10, 4, 10, 4, 10]


@pytest.mark.parametrize(
    ("what", "values", "steps", "start"),
    [
        ("the first request is never steady", [3.0, 3.0, 3.0], None, 1),
        ("fast requests at the start are the ramp", [2.6, 2.9, 3.02, 3.02, 3.03], None, 2),
        ("a plateau on the ramp is part of it", [2.6, 2.61, 2.62, 3.0, 3.01], None, 3),
        ("three fast requests before an outlier", [2.6, 2.6, 2.6, 3.3, 3.0, 3.0, 3.0], None, 3),
        ("a slow outlier in the middle", [2.6, 3.0, 3.0, 3.3, 3.3, 3.0, 3.0, 3.0], None, 1),
        ("a slow outlier last", [2.6, 2.6, 3.0, 3.0, 3.3], None, 2),
        ("a slow outlier first", [3.6, 3.0, 3.0, 3.0], None, 1),
        ("a slow outlier second", [3.0, 3.6, 3.0, 3.0], None, 1),
        ("a fast outlier late", [2.6, 3.0, 3.0, 2.6, 3.0], None, 1),
        ("two levels in turn", [1.0, 1.2, 1.0, 1.2, 1.0, 1.2], None, 1),
        ("a rising slope late", [3.0, 3.0, 3.0, 3.0, 3.2, 3.4], None, 1),
        ("still rising", [2.4, 2.6, 2.8, 3.0], None, None),
        ("two requests are too few", [3.0, 3.0], None, None),
        ("none", [], None, None),
        ("tiers in turn, alike", [2.6, 2.6, 2.6, 3.0, 3.0, 3.0, 3.0, 3.0], IN_TURN, 3),
        ("an anchor that costs more is no ramp", [2.6, 3.3, 3.0, 3.3, 3.0, 3.3, 3.0, 3.3], IN_TURN, 1),
        ("only the few tier has a ramp", [2.6, 3.3, 2.6, 3.3, 3.0, 3.3, 3.0, 3.3], IN_TURN, 1),
        ("only the anchor is noisy", [2.6, 3.3, 3.0, 3.0, 3.0, 3.3, 3.0, 3.0], IN_TURN, 1),
        ("other step counts warm up", [2.6, 2.9, 3.0, 3.3, 3.0, 3.3], [6, 6, 4, 10, 4, 10], 1),
        ("the last of other step counts", [2.6, 2.8, 3.0, 3.0, 3.3, 3.0, 3.3], [6, 6, 6, 4, 10, 4, 10], 2),
    ],
)  # fmt: skip
def test_the_ramp_is_the_fast_head_and_nothing_else(what, values, steps, start) -> None:
    assert first_steady(values, 3, steps) == start, what


@pytest.mark.parametrize(
    ("values", "warm"),
    [
        ([2.9, 3.0, 3.0, 3.0], True),
        ([2.6, 2.6, 3.0, 3.0], False),  # two alike do not say yet that they stay
        ([2.6, 2.6, 3.0, 3.0, 3.0], True),
        ([2.80, 2.85, 2.89, 2.92], False),  # neighbours differ by less than 3 %, and it still rises by 2 %
        ([2.80, 2.85, 2.89, 2.92, 2.94, 2.95], False),
        ([2.80, 2.85, 2.89, 2.92, 2.94, 2.95, 2.955, 2.96], True),
        ([3.0, 2.99, 3.0, 2.98], True),
        ([3.0, 3.0, 3.0], False),
        ([], False),
    ],
)
def test_warm_ups_end_when_the_latest_rise_no_more(values, warm) -> None:
    assert warmed_up(values, 3) is warm


def test_a_ramp_lasts_no_longer_than_it_may() -> None:
    values = [2.6, 2.6, 2.6, 2.6, 3.0, 3.0, 3.0, 3.0, 3.0]
    assert first_steady(values, 3, longest=4) == 4
    assert first_steady(values, 3, longest=3) is None


@given(st.lists(st.sampled_from([1.0, 1.01, 1.05, 1.2]), min_size=1, max_size=8), st.data())
def test_an_outlier_behind_the_ramp_moves_nothing(tail, data) -> None:
    head, level = [0.9, 0.9, 0.9, 1.0], [1.0] * (len(tail) + 2)
    rest = data.draw(st.permutations(tail + level))
    assert first_steady(head + rest, 3) == 3


def test_a_log_of_many_thousand_requests_is_judged_at_once() -> None:
    assert first_steady([1.0 + index for index in range(60_000)], 1e-6) is None


WARM_AND_PAIRS = [4, 4, 4, 4, 4, 10, 4, 10, 4, 10]


@pytest.mark.parametrize(
    ("what", "values", "start", "steady"),
    [
        ("settled in the warm-ups", [2.6, 2.9, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0], 3, True),
        ("settled with the last warm-up", [2.6, 2.7, 2.8, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0], 4, True),
        ("noise in the repeats", [2.6, 3.0, 3.0, 3.0, 3.0, 3.3, 3.0, 3.0, 3.0, 3.0], 2, True),
        ("fast into the first pair", [2.6, 2.6, 2.6, 2.6, 2.6, 2.6, 3.0, 3.0, 3.0, 3.0], 2, False),
        ("rising into the first pair", [2.4, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.0, 3.0, 3.0], None, False),
        ("slower repeats", [2.6, 2.8, 2.8, 2.8, 3.0, 3.0, 2.8, 2.8, 3.0, 3.0], 2, False),
    ],
)
def test_a_session_is_steady_when_the_ramp_ends_before_its_repeats(what, values, start, steady) -> None:
    ramp = judge_ramp(values, WARM_AND_PAIRS, warmups=4, longest=4, steady_pct=3)
    assert (ramp.requests, ramp.first_steady, ramp.steady) == (4, start, steady), what


def test_spread_is_largest_minus_smallest_over_the_median() -> None:
    assert spread_pct([9.0, 10.0, 11.0]) == 20.0
    assert spread_pct([]) == 0.0


@pytest.mark.parametrize(
    ("what", "told_s", "words"),
    [
        ("no steps are told", [(), ()], ""),
        ("three steps have no beginning and no end", [(9.0, 1.0, 1.0)], ""),
        ("steps alike", [(1.0, 1.02, 1.0, 0.99)], ""),
        (
            "a slow first step",
            [(1.5, 1.0, 1.0, 1.0, 1.0, 1.0)],
            "inside a request of 6 steps the first step takes +50 % against the 1 s of the later ones",
        ),
        (
            "two fast steps, in most requests",
            [(0.8, 0.9, 1.0, 1.0, 1.0, 1.0), (0.8, 0.9, 1.0, 1.0, 1.0, 1.0), (2.0, 2.0, 1.0, 1.0, 1.0, 1.0)],
            "inside a request of 6 steps the first 2 steps take -20 %, -10 % against the 1 s of the later ones",
        ),
        ("only the longest requests speak", [(9.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 1.0)], ""),
        ("a step late in a request is no ramp", [(1.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0)], ""),
    ],
)
def test_the_ramp_inside_a_request_is_its_head(what, told_s, words) -> None:
    assert ramp_inside(told_s, 5) == words, what
