"""The boundaries of repeats in a sequence of names, told by two witnesses that need not know of each other.

Towards the front, the first repeat is like the usual cycle up to where it begins; towards the back, the last one up to
where it ends. Where both name the same place of the cycle it is certain: each goes further only where what lies outside
is like the cycle by chance, and stops earlier only where its own repeat is unlike the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DOUBTED = 20  # the share of a cycle, as a divisor, up to which its beginning may be uncertain
_STEPPED_OVER, _FEW, _ALIKE_AGAIN = 24, 6, 5  # names in one only, and how many alike names must follow
_BY_CHANCE = 8  # names that may be alike by chance
_OWN = 0.9  # of the anchors, those that must lie in their own repeat
_WITNESSES = 40  # anchors asked for one boundary, the nearest first


@dataclass(frozen=True, eq=False)
class Repeats:
    """Repeats in a sequence, as positions in it.

    ``starts``: where each begins, ``end``: behind the last. ``usual``: which are like most. Every boundary is certain
    to lie from ``doubt[0]`` to ``doubt[1]`` positions after the one that is given. ``ragged``: the first begins, or the
    last ends, otherwise than the others, so that those two ends are not known.
    """

    starts: Int64s
    end: int
    usual: Bools
    doubt: tuple[int, int]
    ragged: bool


class _Place(NamedTuple):
    """A position in the sequence, and its place in the cycle."""

    position: int
    place: int


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of repeat: the usual cycle, and for each anchor its place in it and its position in each repeat."""

    cycle: Int64s
    places: Int64s
    positions: Int64s

    @property
    def reach(self) -> int:
        """How far a repeat is followed: to where the next would begin, and a little into what only looks like it."""
        return len(self.cycle) + len(self.cycle) // _DOUBTED


def placed(codes: Int64s, kind: Kind) -> Repeats | None:
    """Return where the repeats lie, None where their boundaries cannot be told."""
    length = len(kind.cycle)
    fronts = _stops(codes, kind, 0, -1)
    backs = _stops(codes, kind, -1, 1)
    ends = _ends(fronts, backs, length)
    if ends is None:
        return None
    first, last, overlap = ends
    inner = _boundaries(codes, kind, first.place)
    if inner is None:
        return None
    starts = np.concatenate([[first.position], inner[0]])
    end = last.position - max(0, overlap)
    if (np.diff(starts) <= 0).any() or end <= starts[-1]:
        return None
    whole = np.append(starts, end)
    inside = (kind.positions >= starts - _BY_CHANCE) & (kind.positions < whole[1:] + _BY_CHANCE)
    if inside.mean() < _OWN:  # a boundary in the midst of the repeats would have them elsewhere
        return None
    cycle = np.roll(kind.cycle, -first.place)
    each = [codes[begin:end] for begin, end in zip(whole[:-1].tolist(), whole[1:].tolist(), strict=True)]
    if not _plausible(each, length):
        return None
    usual = [len(one) == length and bool((one == cycle).all()) for one in each]
    if max(abs(overlap), inner[1]) > length // _DOUBTED or not (all(usual) if len(usual) == 2 else any(usual)):
        return None
    # Only where the two witnesses meet has neither gone too far by chance.
    chance = _BY_CHANCE if overlap < 0 else 0
    doubt = (min(0, overlap) - max(inner[1], chance), max(0, overlap) + chance)
    return Repeats(starts, end, np.asarray(usual), doubt, ragged=overlap < 0)


def _plausible(each: list[Int64s], length: int) -> bool:
    """Whether repeats can be such: only the first may be much longer than the cycle, and an outer one much shorter only
    where another is like it."""
    alike = Counter(one.tobytes() for one in each)
    short = any(2 * len(one) < length and alike[one.tobytes()] < 2 for one in (each[0], each[-1]))
    return not short and all(2 * len(one) <= 3 * length for one in each[1:])


def _ends(fronts: list[_Place], backs: list[_Place], length: int) -> tuple[_Place, _Place, int] | None:
    """Return where the first repeat begins, where the last one ends, and how far the end goes beyond the beginning.

    Of the places where the two stop to be like the cycle, those furthest out that agree; None without any agreement.
    """
    pairs = []
    for outwards, front in enumerate(fronts):
        for onwards, back in enumerate(backs):
            overlap = (back.place - front.place + length // 2) % length - length // 2
            if abs(overlap) <= length // _DOUBTED:
                pairs.append((overlap != 0, -outwards - onwards, abs(overlap), front, back, overlap))
    return min(pairs)[3:] if pairs else None


def _stops(codes: Int64s, kind: Kind, number: int, way: int) -> list[_Place]:
    """Return where one repeat stops to be like the cycle, on the way to its beginning (−1) or end (1), nearest first.

    Begins where most of it is like the cycle; names that are in one of the two only are stepped over.
    """
    stretches = [
        sum(
            _like(codes, kind, int(kind.positions[row, number]), int(kind.places[row]), one, kind.reach)
            for one in (-1, 1)
        )
        for row in range(len(kind.places))
    ]
    row = int(np.argmax(stretches))
    position, place, left = int(kind.positions[row, number]), int(kind.places[row]), kind.reach
    found = []
    while True:
        like = min(left, _like(codes, kind, position, place, way, kind.reach))
        position, place, left = position + way * like, place + way * like, left - like
        found.append(_Place(position, place % len(kind.cycle)))
        step = _over(codes, kind, position, place, way) if left else None
        if step is None:
            return found
        position, place, left = position + way * step[0], place + way * step[1], left - step[1]


def _over(codes: Int64s, kind: Kind, position: int, place: int, way: int) -> tuple[int, int] | None:
    """Return how many names of the sequence and of the cycle to step over until they are alike again, if they are."""
    for apart in range(1, _STEPPED_OVER + 1):
        few = range(1, apart + 1) if apart <= _FEW else (apart,)
        for step in ((apart, 0), (0, apart), *((apart, other) for other in few), *((other, apart) for other in few)):
            beyond = position + way * step[0], place + way * step[1]
            if _like(codes, kind, *beyond, way, _ALIKE_AGAIN) >= _ALIKE_AGAIN:
                return step
    return None


def _like(codes: Int64s, kind: Kind, position: int, place: int, way: int, limit: int) -> int:
    """Return how many names are like the cycle's, up to a limit, from a position on (1) or before it (−1)."""
    if not 0 <= position <= len(codes):
        return 0
    most = min(limit, position if way < 0 else len(codes) - position)
    if way < 0:
        mine, usual = codes[position - most : position][::-1], _around(kind.cycle, place - most, place)[::-1]
    else:
        mine, usual = codes[position : position + most], _around(kind.cycle, place, place + most)
    unlike = np.flatnonzero(mine != usual)
    return int(unlike[0]) if len(unlike) else most


def _around(cycle: Int64s, begin: int, end: int) -> Int64s:
    return np.asarray(cycle[np.arange(begin, end) % len(cycle)])


def _boundaries(codes: Int64s, kind: Kind, phase: int) -> tuple[Int64s, int] | None:
    """Return where each repeat but the first begins, by the nearest anchors whose stretch up to there is the usual, and
    how many names of no repeat lie between two at most."""
    length = len(kind.cycle)
    ahead = (kind.places - phase) % length
    behind = length - ahead
    between = 0
    nearest_ahead, nearest_behind = np.argsort(ahead)[:_WITNESSES], np.argsort(behind)[:_WITNESSES]
    found = []
    for number in range(1, kind.positions.shape[1]):
        by_head = by_tail = None
        for row in nearest_ahead.tolist():
            at, needed = int(kind.positions[row, number]) - int(ahead[row]), int(ahead[row]) + _ALIKE_AGAIN
            if _like(codes, kind, at, phase, 1, needed) >= needed:
                by_head = at
                break
        for row in nearest_behind.tolist():
            at, needed = int(kind.positions[row, number - 1]) + int(behind[row]), int(behind[row])
            if _like(codes, kind, at, phase, -1, max(needed, _ALIKE_AGAIN)) >= max(needed, _ALIKE_AGAIN):
                by_tail = at
                break
        if by_head is None and by_tail is None:
            return None
        if by_head is not None and by_tail is not None:
            if by_head < by_tail:
                return None
            between = max(between, by_head - by_tail)
        found.append(by_head if by_head is not None else by_tail)
    return np.asarray(found, np.int64), between
