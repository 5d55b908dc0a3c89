"""The timeline of one layer: compute, communication, and the gaps between, each with its cause. For a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from anchormatrix.attribution.bubbles import RELEASE_NS, released, stream_of
from anchormatrix.attribution.collectives import groups_of
from anchormatrix.attribution.intervals import Intervals, ms, union, union_of
from anchormatrix.attribution.layers import Attention, attention_of
from anchormatrix.captures.table import is_collective
from anchormatrix.records.waits import Lane, Segment, Timeline

_LIMIT = 1500
_Piece = tuple[int, int, str, str]  # start and end on the rank's clock, kind, name


def layer_timeline(
    rank: int,
    step: int,
    kernels: pd.DataFrame,
    *,
    layers: int | None = None,
    attention: str | None = None,
    release_ns: int = RELEASE_NS,
) -> Timeline:
    """Return a middle layer of one rank's step as lanes of segments, in ms from the layer's start.

    A layer runs from the start of its first attention kernel to that of the next layer's; without attention kernels or
    the number of layers, the middle of the step long enough to see is shown. The compute lane holds kernels and gaps by
    cause; each (family, communicator) has a lane, in which the time that compute hides is a segment of its own.
    """
    stream = stream_of(kernels)
    span = _layer_span(attention_of(kernels, attention), layers, stream.busy)
    start = kernels["start_ns"].to_numpy()
    seen = kernels[(start + kernels["dur_ns"].to_numpy() > span[0]) & (start < span[1])]
    mine = ~is_collective(seen) & (seen["stream"] == stream.stream).to_numpy()
    compute = seen[mine].iloc[:_LIMIT]
    gaps = _gaps(stream.gaps, released(stream.gaps, groups_of(kernels), release_ns), kernels, span)
    calls = _calls(seen[is_collective(seen)].iloc[:_LIMIT], union_of(compute))
    drawn = [("compute", sorted([*_kernels(compute), *gaps])), *sorted(calls.items())]
    return Timeline(
        rank=rank,
        step=step,
        layer="a middle layer" if layers else "a middle stretch of the step",
        duration_ms=ms(span[1] - span[0]),
        lanes=tuple(Lane(name=name, segments=tuple(_segments(pieces, *span))) for name, pieces in drawn),
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


def _kernels(rows: pd.DataFrame) -> Iterator[_Piece]:
    for start, dur, name in rows[["start_ns", "dur_ns", "name"]].itertuples(index=False):
        yield int(start), int(start + dur), "compute", str(name)


def _gaps(gaps: Intervals, ended: np.ndarray, kernels: pd.DataFrame, span: tuple[int, int]) -> list[_Piece]:
    """Pieces of the compute stream's gaps with a cause.

    ``released``: the whole gap waited for a collective. ``in_flight``: a collective ran, but its end did not end the
    gap. ``other_work``: only other kernels ran. ``empty``: nothing ran anywhere.
    """
    inside = (gaps.end > span[0]) & (gaps.start < span[1])
    waited = Intervals(gaps.start[inside & ended], gaps.end[inside & ended]).clip(*span)
    rest = Intervals(gaps.start[inside & ~ended], gaps.end[inside & ~ended]).clip(*span)
    running = union_of(kernels, is_collective(kernels))
    idle = rest - running
    empty = idle - union_of(kernels)
    causes = (
        ("gap_released", "released", waited),
        ("gap_collective", "in_flight", rest & running),
        ("other", "other_work", idle - empty),
        ("gap_empty", "empty", empty),
    )
    return sorted((start, end, kind, cause) for kind, cause, part in causes for start, end in part)[:_LIMIT]


def _calls(calls: pd.DataFrame, busy: Intervals) -> dict[str, list[_Piece]]:
    """The calls of each family and communicator, cut where compute begins or ends."""
    lanes: dict[str, list[_Piece]] = {}
    for family, communicator, start, dur in calls[["family", "communicator", "start_ns", "dur_ns"]].itertuples(
        index=False
    ):
        label = f"{family}:{communicator}" if communicator else str(family)
        whole = union(np.asarray([start]), np.asarray([start + dur]))
        for kind, part in (("hidden", whole & busy), ("communication", whole - busy)):
            for first, last in part:
                lanes.setdefault(label, []).append((first, last, kind, label))
    return lanes


def _segments(pieces: Iterable[_Piece], start: int, end: int) -> Iterator[Segment]:
    for whole_first, whole_last, kind, name in pieces:
        first, last = max(whole_first, start), min(whole_last, end)
        if last > first:
            yield Segment(start_ms=ms(first - start), duration_ms=ms(last - first), kind=kind, name=name)
