"""Interval arithmetic, held against counting single points."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.attribution.intervals import EMPTY, Intervals, union

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def made(pairs: list[tuple[int, int]]) -> Intervals:
    return union(np.asarray([a for a, _ in pairs], np.int64), np.asarray([b for _, b in pairs], np.int64))


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for a, b in pairs for point in range(a, b)}


def held(intervals: Intervals) -> set[int]:
    return points(list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)))


@given(PAIRS)
def test_a_union_holds_each_point_once_in_disjoint_ascending_pieces(pairs):
    found = made(pairs)
    assert held(found) == points(pairs)
    assert found.total == len(points(pairs))
    assert (found.start[1:] > found.end[:-1]).all()
    assert (found.end > found.start).all()


@given(PAIRS, PAIRS)
def test_set_operations_are_those_of_the_points(a, b):
    first, second = made(a), made(b)
    assert held(first & second) == points(a) & points(b)
    assert held(first | second) == points(a) | points(b)
    assert held(first - second) == points(a) - points(b)


@given(PAIRS, st.integers(0, 60), st.integers(0, 60))
def test_gaps_and_clip_part_a_range(pairs, one, other):
    low, high = min(one, other), max(one, other)
    found = made(pairs)
    assert held(found.clip(low, high)) == points(pairs) & set(range(low, high))
    assert held(found.gaps(low, high)) == set(range(low, high)) - points(pairs)


@given(PAIRS, PAIRS)
def test_covered_counts_every_given_interval_by_itself_even_when_they_overlap(pairs, asked):
    start, end = (np.asarray([pair[side] for pair in asked], np.int64) for side in (0, 1))
    expected = [len(points(pairs) & set(range(a, b))) for a, b in asked]
    assert made(pairs).covered(start, end).tolist() == expected


def test_zero_length_kernels_cover_nothing():
    assert made([(5, 5), (7, 7)]).total == 0
    assert len(made([(5, 5)])) == 0


def test_touching_intervals_are_one():
    found = made([(3, 5), (1, 3)])
    assert (found.start.tolist(), found.end.tolist()) == ([1], [5])


def test_the_empty_set_behaves():
    some = made([(1, 4)])
    assert ((EMPTY & some).total, (some & EMPTY).total, (some - EMPTY).total, (EMPTY - some).total) == (0, 0, 3, 0)
    assert (EMPTY | some).total == 3


def test_lengths_near_the_clock_of_a_real_capture_are_exact():
    start = 1_736_413_971_558_972_912
    assert union(np.asarray([start, start + 1]), np.asarray([start + 1, start + 3])).total == 3
