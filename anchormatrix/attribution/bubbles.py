"""The gaps of the compute stream: where it waits, by three tests that only mean something together.

1. *exposed family*: how much of each family's time lies in the gaps;
2. *release*: a gap in which a collective ran and that ends when some collective ends waited for it. That a
   collective was running is necessary, not sufficient;
3. *producer and consumer*: how long an attention kernel's own input had been there when it started.

Gap time in which nothing runs anywhere is a true bubble: the most that launch-side work can win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormatrix.attribution.collectives import Group, compute_stream, groups_of
from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.attribution.intervals import EMPTY, Intervals, ms, optional, union, union_of
from anchormatrix.attribution.layers import Attention, Parts, attention_of, producer_lags, split_forward
from anchormatrix.captures.table import Capture
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding
from anchormatrix.records.waits import GapShare, ProducerLag, RankBubbles

RELEASE_NS = 100_000
REFUSED, UNPAIRED = "refused", "unpaired"
_CLOSE_NS = 100_000


@dataclass(frozen=True)
class BubbleOptions:
    """How to look for bubbles.

    ``collective``: the group to split and to pair with attention (``alltoall`` or ``alltoall:445``; by default the one
    with the largest total). ``group_split``: forward calls per layer run. ``layers``: the model's layers.
    ``attention``: part of an attention kernel's name. ``release_ns``: tolerance of the release test. ``order``: see
    :mod:`anchormatrix.attribution.layers`. ``chunks``: masking chunks in effect, by which a rank that computes both
    guidance branches is recognised (0: unknown, each layer runs once).
    """

    layers: int | None = None
    collective: str | None = None
    group_split: int | None = None
    attention: str | None = None
    release_ns: int = RELEASE_NS
    order: str = "auto"
    chunks: int = 0


@dataclass(frozen=True, eq=False)
class ComputeStream:
    """The compute stream of one rank's step: its busy time and the gaps between its first and last kernel."""

    stream: str
    busy: Intervals
    gaps: Intervals


def bubbles(capture: Capture, step: int, options: BubbleOptions = BubbleOptions()) -> list[RankBubbles]:
    """Return the three tests for every rank of one step.

    Raises :class:`InputError` when a rank computes nothing in the step, or the named collective is not in it.
    """
    return [_rank_bubbles(rank, kernels, options) for rank, kernels in capture.per_rank(step)]


def stream_of(kernels: pd.DataFrame) -> ComputeStream:
    """Return the stream with the most compute work. Only its compute kernels count: an AI-CPU collective listed on the
    same stream does not fill a gap."""
    name = compute_stream(kernels)
    if name is None:
        raise InputError("no compute kernel in this step", where="bubbles", todo="was the right step captured?")
    mine = compute_mask(kernels) & (kernels["stream"] == name).to_numpy()
    busy = union_of(kernels, mine)
    return ComputeStream(name, busy, busy.gaps(int(busy.start[0]), int(busy.end[-1])) if len(busy) else EMPTY)


def released(gaps: Intervals, groups: list[Group], tolerance_ns: int) -> np.ndarray:
    """Return which gaps a collective ran in and ended: the gap ends within the tolerance of some collective's end."""
    if not groups or not len(gaps):
        return np.zeros(len(gaps), dtype=bool)
    ends = np.sort(np.concatenate([group.end for group in groups]))
    index = np.searchsorted(ends, gaps.end)
    before = np.abs(gaps.end - ends[np.maximum(index - 1, 0)])
    after = np.abs(ends[np.minimum(index, len(ends) - 1)] - gaps.end)
    ran = _running(groups).covered(gaps.start, gaps.end) > 0
    return ran & (np.minimum(before, after) <= tolerance_ns)


def _running(groups: list[Group]) -> Intervals:
    return (
        union(np.concatenate([g.start for g in groups]), np.concatenate([g.end for g in groups])) if groups else EMPTY
    )


def choose_group(groups: list[Group], wanted: str | None) -> Group | None:
    """Return the group of that label or family (the largest of several), or the largest of all; None without any.

    Raises :class:`InputError` that lists what there is.
    """
    if wanted is None:
        return groups[0] if groups else None
    matching = [group for group in groups if wanted in (group.label, group.family)]
    if not matching:
        labels = ", ".join(sorted(group.label for group in groups)) or "no collective at all"
        raise InputError(f"no collective {wanted!r} in this step", where="collective", expected=f"one of: {labels}")
    return matching[0]


def layer_runs(layers: int, attention: Attention, chunks: int) -> int:
    """Return how many layers ran: a multiple of the model's layers when each runs once per guidance branch."""
    kernels = len(attention.start)
    if chunks and kernels and kernels % (layers * chunks) == 0:
        return kernels // chunks
    return layers


def _rank_bubbles(rank: int, kernels: pd.DataFrame, options: BubbleOptions) -> RankBubbles:
    stream = stream_of(kernels)
    groups = groups_of(kernels)
    gaps = stream.gaps
    attention = attention_of(kernels, options.attention)
    chosen = choose_group(groups, options.collective)
    parts = _parts(chosen, attention, gaps, options)
    rows = [_group_row(label, start, end, gaps, attention) for label, start, end in _split(groups, chosen, parts)]
    empty = gaps - union_of(kernels)
    findings = [Finding(REFUSED, parts.refused, (rank,))] if parts.refused else []
    lags, unpaired = _lags(chosen, attention, parts)
    findings += [Finding(UNPAIRED, unpaired, (rank,))] if unpaired else []
    mask = released(gaps, groups, options.release_ns)
    return RankBubbles(
        rank=rank,
        span_ms=ms(stream.busy.total + gaps.total),
        busy_ms=ms(stream.busy.total),
        gap_ms=ms(gaps.total),
        gap_with_collective_ms=ms((gaps & _running(groups)).total),
        gap_empty_ms=ms(empty.total),
        gap_released_ms=ms(int((gaps.end - gaps.start)[mask].sum())),
        groups=tuple(rows),
        producer_lag_ms=ProducerLag(
            median=ms(np.median(lags)) if len(lags) else None,
            within_100us_share=optional((lags <= _CLOSE_NS).mean()) if len(lags) else None,
        ),
        findings=tuple(findings),
    )


def _parts(chosen: Group | None, attention: Attention, gaps: Intervals, options: BubbleOptions) -> Parts:
    if chosen is None or options.group_split is None:
        return Parts(None)
    if options.layers is None:
        return Parts(None, refused="a split of a layer's calls needs the number of layers (--layers)")
    layers = layer_runs(options.layers, attention, options.chunks)
    return split_forward(chosen, attention, gaps.end, forward=options.group_split, layers=layers, order=options.order)


def _split(groups: list[Group], chosen: Group | None, parts: Parts) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for group in groups:
        if group is chosen and parts.forward is not None:
            for name, mask in (("forward", parts.forward), ("reverse", ~parts.forward)):
                yield f"{group.label} {name}", group.start[mask], group.end[mask]
        else:
            yield group.label, group.start, group.end


def _group_row(label: str, start: np.ndarray, end: np.ndarray, gaps: Intervals, attention: Attention) -> GapShare:
    mine = union(start, end)
    exposed = (mine & gaps).total
    return GapShare(
        group=label,
        calls=len(start),
        total_ms=ms(int((end - start).sum())),
        exposed_ms=ms(exposed),
        exposed_share=round(exposed / mine.total, 6) if mine.total else 0.0,
        overlap_attention_ms=ms((mine & union(attention.start, attention.end)).total),
    )


def _lags(chosen: Group | None, attention: Attention, parts: Parts) -> tuple[np.ndarray, str]:
    if chosen is None or not len(attention.start):
        return np.empty(0, np.int64), ""
    try:
        return producer_lags(chosen, attention, parts.forward), ""
    except InputError as error:
        return np.empty(0, np.int64), str(error)
