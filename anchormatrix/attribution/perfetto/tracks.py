"""Tracks of a trace: which one a kernel stands on, and in which of its lanes, so that no viewer has to drop any.

Slices of one Perfetto track nest or follow each other; of two that overlap in part the importer keeps one
(``slice_tracker.cc``: "misplaced_end_event", "slice_drop_overlapping_complete_event" among trace_processor's counts of
what was lost). So every track has as many lanes as slices run at once.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np
import pandas as pd

from anchormatrix.attribution.intervals import Int64s
from anchormatrix.captures.table import is_collective


def tracks_of(kernels: pd.DataFrame) -> tuple[Int64s, list[str]]:
    """The track of each kernel as an index, and the tracks' names: streams, then communicators, each in order.

    A collective stands on the track of its communicator, wherever it ran; one that names none on that of its stream.
    """
    streams, communicators = kernels["stream"].cat, kernels["communicator"].cat
    numbered = communicators.codes.to_numpy() != _code(communicators.categories, "")
    apart = is_collective(kernels) & numbered
    keys = np.where(apart, communicators.codes.to_numpy(np.int64) + len(streams.categories), streams.codes.to_numpy())
    used, track = np.unique(keys, return_inverse=True)
    names = [f"stream {name}" for name in streams.categories] + [f"communicator {n}" for n in communicators.categories]
    order = sorted(range(len(used)), key=lambda place: (used[place] >= len(streams.categories), names[used[place]]))
    position = np.argsort(np.asarray(order, np.int64))
    return position[track], [names[used[place]] for place in order]


def _code(categories: pd.Index, label: str) -> int:
    return list(categories).index(label) if label in categories else -2


def lanes_of(track: Int64s, start: Int64s, dur: Int64s) -> Int64s:
    """The lane of each slice within its track: the first that is free at its start. Slices come ordered by start.

    A slice without duration holds its lane for a nanosecond: those of one moment would stack, and the importer drops
    what is deeper than 512 (``slice_tracker.h``).
    """
    lane = np.zeros(len(track), np.int64)
    order = np.argsort(track, kind="stable")
    bounds = np.flatnonzero(np.diff(track[order], prepend=-1, append=-1))
    for first, last in pairwise(bounds.tolist()):
        rows = order[first:last]
        begin, end = start[rows], start[rows] + np.maximum(dur[rows], 1)
        apart = np.append(True, begin[1:] >= np.maximum.accumulate(end)[:-1])  # nothing runs when this one begins
        alone = apart & np.append(apart[1:], True)
        if not alone.all():
            lane[rows[~alone]] = _first_free(begin[~alone].tolist(), end[~alone].tolist())
    return lane


def _first_free(begin: list[int], end: list[int]) -> list[int]:
    """The lowest lane that is free, slice by slice."""
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    found, lanes = [], 0
    for at, until in zip(begin, end, strict=True):
        while busy and busy[0][0] <= at:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
        found.append(lane)
        heapq.heappush(busy, (until, lane))
    return found
