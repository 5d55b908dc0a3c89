"""The collectives of a step: calls and times by (family, communicator), reconciliation, concurrency, stream purity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import pandas as pd

from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.intervals import Intervals, ms, optional, union, union_of
from anchormatrix.attribution.reading import SERIAL
from anchormatrix.captures.names import COMPUTE
from anchormatrix.captures.table import OUTSIDE, Capture, is_collective, is_core, is_without_stream
from anchormatrix.records.attribution import Collectives, Family, Overlap, RankCollectives, Stream
from anchormatrix.records.finding import Finding


@dataclass(frozen=True, eq=False)
class Group:
    """The calls of one family on one communicator, in order of their start."""

    family: str
    communicator: str
    start: np.ndarray
    end: np.ndarray

    @property
    def label(self) -> str:
        """``alltoall:445``, or the family alone when its names carry no communicator."""
        return f"{self.family}:{self.communicator}" if self.communicator else self.family

    @property
    def union(self) -> Intervals:
        """The time in which at least one call runs."""
        return union(self.start, self.end)

    @property
    def sum_ns(self) -> int:
        """Occupancy: the calls' durations added up."""
        return int((self.end - self.start).sum())


def groups_of(kernels: pd.DataFrame) -> list[Group]:
    """Return the collectives of one rank's kernels by (family, communicator), the longest total first.

    A kernel that names no communicator and runs within a call of its family is that call's own work, no other call.
    """
    rows = kernels.loc[is_collective(kernels), ["family", "communicator", "start_ns", "dur_ns"]]
    families, communicators = rows["family"].cat, rows["communicator"].cat
    key = (
        families.codes.to_numpy().astype(np.int64) * (len(communicators.categories) + 1)
        + communicators.codes.to_numpy()
    )
    start = rows["start_ns"].to_numpy()
    end = start + rows["dur_ns"].to_numpy()
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order])) + 1
    found = []
    for block in np.split(order, bounds):
        if len(block):
            first = int(block[0])
            family, communicator = (str(one.categories[one.codes.iloc[first]]) for one in (families, communicators))
            found.append(Group(family, communicator, start[block], end[block]))
    found = [kept for group in found if (kept := _beside_calls(group, found)) is not None]
    return sorted(found, key=lambda group: (-group.sum_ns, group.label))


def _beside_calls(group: Group, groups: Sequence[Group]) -> Group | None:
    """The group without the kernels that calls on a communicator enclose; None when nothing is left of it."""
    calls = [other for other in groups if other.family == group.family and other.communicator]
    if group.communicator or not calls:
        return group
    begin, end = (np.concatenate([getattr(call, edge) for call in calls]) for edge in ("start", "end"))
    order = np.argsort(begin, kind="stable")
    latest = np.maximum.accumulate(end[order])
    before = np.searchsorted(begin[order], group.start, side="right") - 1
    apart = (before < 0) | (latest[before] < group.end)
    return Group(group.family, "", group.start[apart], group.end[apart]) if apart.any() else None


def collectives(capture: Capture, *, layers: int | None = None, steps: int | None = None) -> Collectives:
    """Return families and overlaps of every rank over its steps, and the streams over everything captured.

    ``calls_per_layer`` = calls ÷ (layers × steps), ``steps`` those of the rank when not given; without ``layers`` it is
    not known. A family with calls outside the steps only has no times.
    """
    return Collectives(
        ranks=tuple(_of_rank(rank, kernels, layers, steps) for rank, kernels in capture.per_rank()),
        rows_read=capture.rows_read,
        rows_unusable=capture.unusable,
        unusable_causes=dict(capture.rows_unusable),
        notes=tuple(capture.notes),
    )


def _of_rank(rank: int, kernels: pd.DataFrame, layers: int | None, steps: int | None) -> RankCollectives:
    owned = (kernels["step"] != OUTSIDE).to_numpy()
    inside, left = kernels[owned], groups_of(kernels[~owned])
    groups = groups_of(inside)
    computing = union_of(inside, compute_mask(inside))
    counted = steps or int(inside["step"].nunique())
    executed = layers * counted if layers else None
    beside = {(group.family, group.communicator): group for group in left}
    families = [
        _family(group, computing, executed, beside.pop((group.family, group.communicator), None)) for group in groups
    ]
    return RankCollectives(
        rank=rank,
        families=(*families, *(_only_outside(group) for group in beside.values())),
        overlap=tuple(_overlaps(groups)),
        streams=tuple(_streams(kernels)),
        steps=counted,
    )


def _family(group: Group, computing: Intervals, executed: int | None, outside: Group | None) -> Family:
    length, covered = group.end - group.start, group.union.total
    return Family(
        family=group.family,
        communicator=group.communicator,
        calls=len(length),
        calls_per_layer=optional(len(length) / executed) if executed else None,
        sum_ms=ms(group.sum_ns),
        mean_ms=ms(length.mean()),
        median_ms=ms(np.median(length)),
        max_ms=ms(length.max()),
        union_ms=ms(covered),
        union_over_sum=optional(covered / group.sum_ns) if group.sum_ns else None,
        exposed_ms=ms(covered - (group.union & computing).total),
        outside_calls=len(outside.start) if outside else 0,
        outside_ms=ms(outside.sum_ns) if outside else 0.0,
    )


def _only_outside(group: Group) -> Family:
    return Family(
        family=group.family,
        communicator=group.communicator,
        calls=0,
        calls_per_layer=None,
        sum_ms=0.0,
        mean_ms=0.0,
        median_ms=0.0,
        max_ms=0.0,
        union_ms=0.0,
        union_over_sum=None,
        outside_calls=len(group.start),
        outside_ms=ms(group.sum_ns),
    )


def _overlaps(groups: list[Group]) -> Iterator[Overlap]:
    """Intersection ÷ the smaller union, of two families, and of two communicators of one.

    Families are named alone (``allGather``), communicators of one family as ``alltoall:445``.
    """
    families: dict[str, list[Group]] = {}
    for group in groups:
        families.setdefault(group.family, []).append(group)
    unions = {
        family: union(np.concatenate([g.start for g in same]), np.concatenate([g.end for g in same]))
        for family, same in sorted(families.items())
    }
    named = [list(unions.items())]
    named += [sorted((g.label, g.union) for g in same) for _, same in sorted(families.items()) if len(same) > 1]
    for (a, first), (b, second) in chain.from_iterable(combinations(one, 2) for one in named):
        smaller = min(first.total, second.total)
        yield Overlap(a=a, b=b, share=round((first & second).total / smaller, 6) if smaller else 0.0)


def _streams(kernels: pd.DataFrame) -> Iterator[Stream]:
    """What runs on each stream."""
    streams, cores = kernels["stream"].cat, kernels["core"].cat
    key = streams.codes.to_numpy().astype(np.int64) * len(cores.categories) + cores.codes.to_numpy()
    size = len(streams.categories) * len(cores.categories)
    counts, total = np.bincount(key, minlength=size), _sums(key, kernels["dur_ns"].to_numpy(), size)
    for place in np.flatnonzero(counts).tolist():
        stream, core = divmod(place, len(cores.categories))
        yield Stream(
            stream=str(streams.categories[stream]),
            core=str(cores.categories[core]),
            kernels=int(counts[place]),
            total_ms=ms(total[place]),
        )


def _sums(key: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return the sum of ``values`` by key, as integers."""
    total = np.zeros(size, np.int64)
    np.add.at(total, key, values)
    return total


def compute_stream(kernels: pd.DataFrame) -> str | None:
    """Return the stream with the most compute time of one rank's kernels, or None when nothing computes."""
    mask = compute_mask(kernels)
    if not mask.any():
        return None
    streams = kernels["stream"].cat
    length = np.where(mask, kernels["dur_ns"].to_numpy(), 0)
    totals = _sums(streams.codes.to_numpy().astype(np.int64), length, len(streams.categories))
    seen = np.bincount(streams.codes.to_numpy()[mask], minlength=len(totals)) > 0
    return str(streams.categories[int(np.where(seen, totals, -1).argmax())])


def check_streams(capture: Capture) -> list[Finding]:
    """Find compute kernels beside the compute stream: on a stream that carries collectives, or on one of their own.

    A masking stream must carry collectives only. Where the table gives collectives no stream (``N/A``), any second
    stream with compute is reported, because it may be theirs.
    """
    found = []
    for rank, kernels in capture.per_rank():
        main = compute_stream(kernels)
        collective = is_collective(kernels)
        unnamed = is_without_stream(kernels)
        side = (kernels["stream"] != main).to_numpy() & ~unnamed
        leaking = side & is_core(kernels, COMPUTE) & ~collective
        if not leaking.any():
            continue
        carriers = set(kernels["stream"][collective & side].astype(str))
        unplaced = bool((collective & unnamed).any())
        leaked = kernels[leaking]
        for stream, rows in leaked.groupby("stream", observed=True):
            work = f"{len(rows)} compute kernels ({rows['dur_ns'].sum() / 1e6:.3f} ms)"
            if str(stream) in carriers:
                found.append(Finding("leaked_compute", f"stream {stream} carries collectives and {work}", (rank,)))
            elif unplaced:
                text = f"stream {stream} runs {work} beside the compute stream {main}: is it the masking stream?"
                found.append(Finding("leaked_compute", text, (rank,)))
    return by_text(found)


def reconcile(found: Collectives, *, layers: int | None) -> list[Finding]:
    """Check calls = layers × calls per layer × steps for each family and communicator; a remainder is a finding.

    Groups with fewer calls than layers × steps (the output's gather, a broadcast) do not belong to the layers and are
    left alone.
    """
    if not layers:
        return []
    return by_text(
        Finding(
            "remainder",
            f"{_named(family)}: {family.calls} calls are no multiple of {layers} layers × {one.steps} steps; "
            f"{family.calls % (layers * one.steps)} are left over, another collective is mixed in (per-layer offload, "
            "tensor parallelism, an encoder or decoder): prove it by a run with offload off",
            (one.rank,),
        )
        for one in found.ranks
        for family in one.families
        if family.calls > layers * one.steps and family.calls % (layers * one.steps)
    )


def concurrency(found: Collectives) -> list[Finding]:
    """Say where union ÷ sum is below 1: calls run at the same time, so their sum is occupancy and not exposure."""
    return by_text(
        Finding(
            "concurrent",
            f"{_named(family)} runs concurrently with itself (union ÷ sum below 1): its sum is occupancy, not transfer "
            "time",
            (one.rank,),
        )
        for one in found.ranks
        for family in one.families
        if family.union_over_sum is not None and family.union_over_sum < SERIAL
    )


def _named(family: Family) -> str:
    return f"{family.family} on communicator {family.communicator or '(not named)'}"
