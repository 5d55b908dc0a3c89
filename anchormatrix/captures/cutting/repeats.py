"""The repeats of a sequence of names: where each begins, known by what occurs exactly once in every one of them.

Steps repeat, with small differences: the first allocates, a scheduler starts and ends otherwise, a cache leaves layers
out. So no period is slid over the sequence. Runs of names that occur as often as there are repeats are *anchors*: those
of one kind of repeat come in turns, each once before any comes again. What repeats elsewhere (layers of a text encoder,
tiles of a decoder) makes anchors of its own, apart from these; layers inside a step occur more often.

Between two occurrences of an anchor lies one cycle, the usual one being the most frequent. Where in the cycle a repeat
begins is told by two witnesses: towards the front, the first repeat is like the cycle up to where it begins; towards
the back, the last one is like the cycle up to where it ends. Where both name the same place it is certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from anchormatrix.captures.cutting.boundaries import Int64s, Kind, Repeats, placed

_WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # of the runs of names that may be anchors
_MOST_ANCHORS = 400  # of a kind of repeat: more say the same
_MOST_KINDS = 8
_LIKE = 20  # the share of a cycle, as a divisor, by which others may differ in their names


def repeats(codes: Int64s, count: int) -> list[Repeats]:
    """Return what repeats ``count`` times, at least twice, in the order of the sequence; what overlaps is said once.

    ``codes``: a number for each name.
    """
    found: list[Repeats] = []
    for width, runs in zip(_WIDTHS, _runs(codes), strict=False):
        for positions in _kinds(runs, count, width):
            kind = _usual(codes, positions)
            one = placed(codes, kind) if kind is not None else None
            if one is not None:
                found.append(one)
    # Of what overlaps, the most certain: longer runs of names see what shorter ones confuse.
    found.sort(key=lambda one: (one.ragged, one.doubt[1] - one.doubt[0], int(one.starts[0]) - one.end))
    apart: list[Repeats] = []
    for one in found:
        if not any(_same_part(one, other) for other in apart):
            apart.append(one)
    return sorted(apart, key=lambda one: int(one.starts[0]))


def _same_part(one: Repeats, other: Repeats) -> bool:
    common = min(one.end, other.end) - max(int(one.starts[0]), int(other.starts[0]))
    return 2 * common > min(one.end - int(one.starts[0]), other.end - int(other.starts[0]))


def frequent(codes: Int64s) -> int:
    """Return how often most runs of names that occur more than once do: what is there to see where nothing fits."""
    seen: Counter[int] = Counter()
    for _, runs in zip(_WIDTHS, _runs(codes), strict=False):
        seen.update(np.bincount(runs).tolist())
    return max((count for count in seen if count > 1), key=lambda count: (seen[count], count), default=0)


def _runs(codes: Int64s) -> Iterator[Int64s]:
    """Yield a number for the run of names that begins at each position, of one name, two, four …"""
    runs, width = np.unique(codes, return_inverse=True)[1].astype(np.int64), 1
    while len(runs) > 1:
        yield runs
        runs = np.unique(runs[:-width] * (int(runs.max()) + 1) + runs[width:], return_inverse=True)[1].astype(np.int64)
        width *= 2


def _kinds(runs: Int64s, count: int, width: int) -> Iterator[Int64s]:
    """Yield the positions of the anchors of each kind of repeat: a row for each anchor, in the order of the first."""
    counts = np.bincount(runs)
    wanted = np.flatnonzero(counts[runs] == count)
    if not len(wanted):
        return
    order = wanted[np.argsort(runs[wanted], kind="stable")]
    left = order.reshape(-1, count)
    left = left[np.argsort(left[:, 0], kind="stable")]
    for _ in range(_MOST_KINDS):
        if not len(left):
            return
        span = left[:, -1] - left[:, 0]
        reference = left[int(np.argsort(span, kind="stable")[len(span) // 2])]
        # In turns with the reference: each lies between the occurrence of it before and the one after.
        with_it = (left[:, 1:] > reference[:-1]).all(axis=1) & (left[:, :-1] < reference[1:]).all(axis=1)
        mine = left[with_it]
        yield mine[np.unique(np.linspace(0, len(mine) - 1, min(len(mine), _MOST_ANCHORS)).astype(np.int64))]
        left = left[~with_it]


def _usual(codes: Int64s, positions: Int64s) -> Kind | None:
    """Return the usual cycle of a kind of repeat, and where its anchors lie in it."""
    best: tuple[int, int, np.ndarray] | None = None
    for row in positions[np.unique(np.linspace(0, len(positions) - 1, min(len(positions), 16)).astype(np.int64))]:
        lengths = Counter(np.diff(row).tolist())
        length, times = max(lengths.items(), key=lambda item: (item[1], item[0]))
        if best is None or times > best[0]:
            best = times, length, row
    if best is None or len(positions) < 2:
        return None
    _, _, reference = best
    cycles = [codes[begin:end] for begin, end in zip(reference[:-1].tolist(), reference[1:].tolist(), strict=True)]
    same = Counter(one.tobytes() for one in cycles)
    text, times = max(same.items(), key=lambda item: (item[1], len(item[0])))
    if times == 1 < len(cycles):
        text = _likest(cycles) if len(cycles) > 2 else b""
        if not text:
            return None
    cycle = np.frombuffer(text, codes.dtype)
    like = [number for number, one in enumerate(cycles) if one.tobytes() == text]
    places, kept = [], []
    for row in positions:
        at = {(int(row[n]) if row[n] >= reference[n] else int(row[n + 1])) - int(reference[n]) for n in like}
        place = at.pop()
        if not at and 0 <= place < len(cycle):
            places.append(place)
            kept.append(row)
    return Kind(cycle, np.asarray(places, np.int64), np.asarray(kept, np.int64)) if kept else None


def _likest(cycles: list[Int64s]) -> bytes:
    """Return the cycle whose names are most like those of all others; none where most have others."""
    names = int(max(one.max() for one in cycles)) + 1
    counts = np.stack([np.bincount(one, minlength=names) for one in cycles])
    apart = np.abs(counts[:, None, :] - counts[None, :, :]).sum(axis=2)
    best = int(apart.sum(axis=1).argmin())
    return cycles[best].tobytes() if _LIKE * np.median(apart[best]) <= len(cycles[best]) else b""
