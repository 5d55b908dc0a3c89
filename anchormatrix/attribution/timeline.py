"""The timeline of one layer: compute, communication, and the gaps between, each with its cause. For a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormatrix.attribution.bubbles import RELEASE_NS, released, stream_of
from anchormatrix.attribution.collectives import groups_of
from anchormatrix.attribution.intervals import Intervals, ms, union, union_of
from anchormatrix.attribution.layers import Attention, attention_of
from anchormatrix.captures.table import is_collective
from anchormatrix.records.attribution import Lane, Segment, Timeline

RELEASED, IN_FLIGHT, OTHER_WORK, EMPTY_GAP = ("released", "in_flight", "other_work", "empty")
_LIMIT = 1500
_GAP_KINDS = {RELEASED: "gap_released", IN_FLIGHT: "gap_collective", EMPTY_GAP: "gap_empty"}


@dataclass(frozen=True)
class LayerTimeline:
    """One rank's layer, times in ns of its own clock. ``gaps`` are pieces of the compute stream's gaps with a cause:
    ``released`` (the whole gap waited for a collective), ``in_flight`` (a collective ran, but its end did not end the
    gap), ``other_work`` (only other kernels ran), ``empty`` (nothing ran anywhere)."""

    rank: int
    span: tuple[int, int]
    compute: tuple[tuple[int, int, str], ...]
    communication: tuple[tuple[int, int, str, str], ...]
    gaps: tuple[tuple[int, int, str], ...]

    @property
    def pieces(self) -> Iterator[tuple[int, int, bool, str, str]]:
        """Iterate over ``(start, end, hidden, family, communicator)``: collectives cut where compute begins or ends."""
        busy = union(*_columns(self.compute))
        for start, end, family, communicator in self.communication:
            whole = union(np.asarray([start]), np.asarray([end]))
            for part, hidden in ((whole & busy, True), (whole - busy, False)):
                for first, last in zip(part.start.tolist(), part.end.tolist(), strict=True):
                    yield first, last, hidden, family, communicator


def _columns(rows: Sequence[tuple[int, int, str]]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray([row[0] for row in rows], np.int64), np.asarray([row[1] for row in rows], np.int64)


def layer_timeline(
    rank: int,
    kernels: pd.DataFrame,
    *,
    layers: int | None = None,
    attention: str | None = None,
    release_ns: int = RELEASE_NS,
) -> LayerTimeline:
    """Return a middle layer of one rank's step.

    A layer runs from the start of its first attention kernel to that of the next layer's; without attention kernels or
    the number of layers, the middle of the step long enough to see is shown.
    """
    stream = stream_of(kernels)
    span = _layer_span(attention_of(kernels, attention), layers, stream.busy)
    groups = groups_of(kernels)
    start = kernels["start_ns"].to_numpy()
    end = start + kernels["dur_ns"].to_numpy()
    seen = kernels[(end > span[0]) & (start < span[1])]
    mine = ~is_collective(seen) & (seen["stream"] == stream.stream).to_numpy()
    compute = seen[mine].iloc[:_LIMIT]
    communication = seen[is_collective(seen)].iloc[:_LIMIT]
    return LayerTimeline(
        rank,
        span,
        tuple(
            (int(s), int(s + d), str(n)) for s, d, n in compute[["start_ns", "dur_ns", "name"]].itertuples(index=False)
        ),
        tuple(
            (int(row.start_ns), int(row.start_ns + row.dur_ns), str(row.family), str(row.communicator))
            for row in communication.itertuples(index=False)
        ),
        tuple(_gaps(stream.gaps, released(stream.gaps, groups, release_ns), kernels, span)),
    )


def _layer_span(attention: Attention, layers: int | None, busy: Intervals) -> tuple[int, int]:
    count = len(attention.start)
    share = count // layers if layers and count >= layers and count % layers == 0 else 1
    middle = (count // share // 2) * share
    if count >= 2 * share:
        first = min(middle, count - 2 * share)
        return int(attention.start[first]), int(attention.start[first + share])
    begin, finish = int(busy.start[0]), int(busy.end[-1])
    pieces = max(1, layers or 20)
    return begin + (finish - begin) * (pieces // 2) // pieces, begin + (finish - begin) * (pieces // 2 + 1) // pieces


def _gaps(
    gaps: Intervals, ended: np.ndarray, kernels: pd.DataFrame, span: tuple[int, int]
) -> list[tuple[int, int, str]]:
    inside = (gaps.end > span[0]) & (gaps.start < span[1])
    waited = Intervals(gaps.start[inside & ended], gaps.end[inside & ended]).clip(*span)
    rest = Intervals(gaps.start[inside & ~ended], gaps.end[inside & ~ended]).clip(*span)
    running = union_of(kernels, is_collective(kernels))
    in_flight = rest & running
    idle = rest - running
    empty = idle - union_of(kernels)
    pieces = {RELEASED: waited, IN_FLIGHT: in_flight, OTHER_WORK: idle - empty, EMPTY_GAP: empty}
    found = [
        (int(start), int(end), cause)
        for cause, part in pieces.items()
        for start, end in zip(part.start.tolist(), part.end.tolist(), strict=True)
    ]
    return sorted(found)[:_LIMIT]


def lanes(found: LayerTimeline, step: int, layer: str) -> Timeline:
    """One layer as lanes of segments, in ms from the layer's start, for a picture.

    The compute lane holds kernels and gaps by cause; each (family, communicator) has a lane, in which the time that
    compute hides is a segment of its own.
    """
    start, end = found.span
    compute = [(a, b, "compute", name) for a, b, name in found.compute]
    gaps = [(a, b, _GAP_KINDS.get(cause, "other"), cause) for a, b, cause in found.gaps]
    drawn = [("compute", sorted([*compute, *gaps]))]
    groups: dict[str, list[tuple[int, int, str, str]]] = {}
    for first, last, hidden, family, communicator in found.pieces:
        label = f"{family}:{communicator}" if communicator else family
        groups.setdefault(label, []).append((first, last, "hidden" if hidden else "communication", label))
    drawn += sorted(groups.items())
    return Timeline(
        rank=found.rank,
        step=step,
        layer=layer,
        duration_ms=ms(end - start),
        lanes=tuple(Lane(name=name, segments=tuple(_segments(pieces, start, end))) for name, pieces in drawn),
    )


def _segments(pieces: Iterable[tuple[int, int, str, str]], start: int, end: int) -> Iterable[Segment]:
    for whole_first, whole_last, kind, name in pieces:
        first, last = max(whole_first, start), min(whole_last, end)
        if last > first:
            yield Segment(start_ms=ms(first - start), duration_ms=ms(last - first), kind=kind, name=name)
