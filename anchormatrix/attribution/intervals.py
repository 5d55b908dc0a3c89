"""Sets of time on the integer line: union, intersection, gaps, and how much of each interval lies in a set.

All intervals are half-open ``[start, end)`` in integer nanoseconds; an interval of zero length covers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of time as disjoint, non-touching, ascending intervals."""

    start: Int64s
    end: Int64s

    @property
    def total(self) -> int:
        """Length of the set."""
        return int((self.end - self.start).sum())

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.start.tolist(), self.end.tolist(), strict=True)

    def __and__(self, other: Intervals) -> Intervals:
        """Return the intersection of two sets."""
        first = np.searchsorted(other.end, self.start, side="right")
        last = np.searchsorted(other.start, self.end, side="left")
        count = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), count)
        theirs = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        return Intervals(
            np.maximum(self.start[mine], other.start[theirs]), np.minimum(self.end[mine], other.end[theirs])
        )

    def __or__(self, other: Intervals) -> Intervals:
        """Return the union of two sets."""
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def __sub__(self, other: Intervals) -> Intervals:
        """Return what of this set is not in the other."""
        if not len(self):
            return self
        return self & other.gaps(int(self.start[0]), int(self.end[-1]))

    def gaps(self, start: int, end: int) -> Intervals:
        """Return the complement of the set within ``[start, end)``."""
        starts = np.concatenate([[start], self.end])
        ends = np.concatenate([self.start, [end]])
        return _non_empty(np.clip(starts, start, end), np.clip(ends, start, end))

    def clip(self, start: int, end: int) -> Intervals:
        """Return the part of the set within ``[start, end)``."""
        return _non_empty(np.clip(self.start, start, end), np.clip(self.end, start, end))

    def before(self, times: Int64s) -> Int64s:
        """Return how much of the set lies before each time."""
        passed = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.end - self.start)])
        index = np.searchsorted(self.start, times, side="right")
        if not len(self):
            return np.zeros(len(times), np.int64)
        inside = np.maximum(np.minimum(times, self.end[index - 1]) - self.start[index - 1], 0)
        return np.where(index > 0, passed[np.maximum(index - 1, 0)] + inside, 0)

    def covered(self, start: Int64s, end: Int64s) -> Int64s:
        """Return how much of each given interval lies in the set; the given intervals may overlap each other."""
        return self.before(end) - self.before(start)


def union(start: Int64s, end: Int64s) -> Intervals:
    """Return the union of any intervals, in any order, touching ones joined."""
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(start[first], reach[last])


def union_of(kernels: pd.DataFrame, mask: npt.NDArray[np.bool_] | None = None) -> Intervals:
    """Return the union of the kernels' intervals, of those under ``mask`` when it is given."""
    start, dur = kernels["start_ns"].to_numpy(), kernels["dur_ns"].to_numpy()
    if mask is not None:
        start, dur = start[mask], dur[mask]
    return union(start, start + dur)


def _non_empty(start: Int64s, end: Int64s) -> Intervals:
    keep = end > start
    return Intervals(start[keep], end[keep])


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds; six decimals are exact for integers."""
    return round(float(ns) / 1e6, 6)


def optional(value: float | None) -> float | None:
    """A share or ratio, or None where it is not known."""
    return None if value is None or math.isnan(value) else round(float(value), 6)
