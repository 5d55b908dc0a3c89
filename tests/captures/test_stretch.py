"""By how much the profiler stretches a step, and which captured step was slow by itself."""

from __future__ import annotations

import pytest

from anchormatrix.captures.stretch import slow_by_itself, stands_out, stretch, usual_stretch


def test_the_seconds_of_exposed_communication_stay_and_the_rest_is_stretched():
    assert stretch(600, 100, 600) == 1.2  # 600 ms captured beside 100 ms exposed; 500 of 600 ms without the profiler
    assert stretch(600, 100, 100) is None
    assert stretch(0, 100, 600) is None


def test_the_usual_stretch_is_the_median_of_those_that_are_alike():
    assert usual_stretch([2.0, 1.1, 1.2]) == pytest.approx(1.15)
    assert usual_stretch([1.1]) == 1.1
    assert usual_stretch([]) is None


def test_a_step_stands_out_by_more_than_a_fifth():
    assert stands_out(1.4, 1.15)
    assert not stands_out(1.35, 1.15)


def test_a_captured_step_is_slow_by_itself_beyond_one_and_a_half_timed_ones():
    assert not slow_by_itself(1.5, [1.0, 1.0, 9.0])
    assert slow_by_itself(1.51, [1.0, 1.0, 9.0])
    assert not slow_by_itself(None, [1.0])
    assert not slow_by_itself(9.0, [])
