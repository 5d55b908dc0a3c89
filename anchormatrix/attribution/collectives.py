"""The collectives of a step: calls and times by (family, communicator), reconciliation, concurrency, stream purity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.intervals import Intervals, union
from anchormatrix.captures.names import COMPUTE
from anchormatrix.captures.table import NO_STREAM, Capture, is_collective, is_core
from anchormatrix.records.attribution import Finding

FAMILY_COLUMNS = (
    *("rank", "family", "communicator", "calls", "calls_per_layer", "sum_ns", "mean_ns", "median_ns", "max_ns"),
    *("union_ns", "union_over_sum"),
)
SERIAL = 0.98  # union ÷ sum from here on: one call at a time


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
    """Return the collectives of one rank's kernels by (family, communicator), the longest total first."""
    rows = kernels[is_collective(kernels)]
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
            first = rows.iloc[int(block[0])]
            found.append(Group(str(first["family"]), str(first["communicator"]), start[block], end[block]))
    return sorted(found, key=lambda group: (-group.sum_ns, group.label))


def collectives(capture: Capture, *, layers: int | None = None, steps: int | None = None) -> pd.DataFrame:
    """Return ``FAMILY_COLUMNS`` over everything captured.

    ``calls_per_layer`` = calls ÷ (layers × steps), ``steps`` counted from the capture when not given; without
    ``layers`` it is NaN.
    """
    executed = layers * (steps or max(1, len(capture.step_ids))) if layers else None
    rows = []
    for rank, kernels in capture.per_rank():
        for group in groups_of(kernels):
            length = group.end - group.start
            covered = group.union.total
            rows.append(
                {
                    "rank": rank,
                    "family": group.family,
                    "communicator": group.communicator,
                    "calls": len(length),
                    "calls_per_layer": len(length) / executed if executed else np.nan,
                    "sum_ns": int(length.sum()),
                    "mean_ns": float(length.mean()),
                    "median_ns": float(np.median(length)),
                    "max_ns": int(length.max()),
                    "union_ns": covered,
                    "union_over_sum": covered / int(length.sum()) if length.any() else np.nan,
                }
            )
    return pd.DataFrame(rows, columns=list(FAMILY_COLUMNS))


def overlap_matrix(capture: Capture) -> pd.DataFrame:
    """Return ``rank, a, b, share``: intersection ÷ the smaller union, of two families, and of two communicators of one.

    Families are named alone (``allGather``), communicators of one family as ``alltoall:445``.
    """
    rows = []
    for rank, kernels in capture.per_rank():
        for a, b, share in _overlaps(groups_of(kernels)):
            rows.append((rank, a, b, share))
    return pd.DataFrame(rows, columns=["rank", "a", "b", "share"])


def _overlaps(groups: list[Group]) -> Iterator[tuple[str, str, float]]:
    families: dict[str, list[Group]] = {}
    for group in groups:
        families.setdefault(group.family, []).append(group)
    unions = {
        family: union(np.concatenate([g.start for g in same]), np.concatenate([g.end for g in same]))
        for family, same in sorted(families.items())
    }
    pairs = [list(unions.items())]
    pairs += [sorted((g.label, g.union) for g in same) for _, same in sorted(families.items()) if len(same) > 1]
    for named in pairs:
        for position, (a, first) in enumerate(named):
            for b, second in named[position + 1 :]:
                smaller = min(first.total, second.total)
                yield a, b, (first & second).total / smaller if smaller else 0.0


def streams(capture: Capture) -> pd.DataFrame:
    """Return ``rank, stream, core, kernels, total_ns``: what runs on each stream."""
    rows = capture.kernels
    table = rows.groupby(["rank", "stream", "core"], observed=True)["dur_ns"].agg(["size", "sum"]).reset_index()
    return table.rename(columns={"size": "kernels", "sum": "total_ns"}).astype({"stream": str, "core": str})


def compute_stream(kernels: pd.DataFrame) -> str | None:
    """Return the stream with the most compute time of one rank's kernels, or None when nothing computes."""
    rows = kernels[is_core(kernels, COMPUTE) & ~is_collective(kernels)]
    if rows.empty:
        return None
    totals = rows.groupby("stream", observed=True)["dur_ns"].sum()
    return str(totals.idxmax())


def check_streams(capture: Capture) -> list[Finding]:
    """Find compute kernels beside the compute stream: on a stream that carries collectives, or on one of their own.

    A masking stream must carry collectives only. Where the table gives collectives no stream (``N/A``), any second
    stream with compute is reported, because it may be theirs.
    """
    found = []
    for rank, kernels in capture.per_rank():
        main = compute_stream(kernels)
        collective = is_collective(kernels)
        side = (kernels["stream"] != main).to_numpy() & (kernels["stream"] != NO_STREAM).to_numpy()
        carriers = set(kernels["stream"][collective & side].astype(str))
        unplaced = bool((collective & (kernels["stream"] == NO_STREAM).to_numpy()).any())
        leaked = kernels[side & is_core(kernels, COMPUTE) & ~collective]
        for stream, rows in leaked.groupby("stream", observed=True):
            work = f"{len(rows)} compute kernels ({rows['dur_ns'].sum() / 1e6:.3f} ms)"
            if str(stream) in carriers:
                found.append(Finding("leaked_compute", f"stream {stream} carries collectives and {work}", (rank,)))
            elif unplaced:
                text = f"stream {stream} runs {work} beside the compute stream {main}: is it the masking stream?"
                found.append(Finding("leaked_compute", text, (rank,)))
    return by_text(found)


def reconcile(table: pd.DataFrame, *, layers: int | None, steps: int) -> list[Finding]:
    """Check calls = layers × calls per layer × steps for each group of :func:`collectives`; a remainder is a finding.

    Groups with fewer calls than layers × steps (the output's gather, a broadcast) do not belong to the layers and are
    left alone.
    """
    if not layers:
        return []
    executed = layers * steps
    found = []
    for row in table.to_dict("records"):
        extra = row["calls"] % executed
        if row["calls"] > executed and extra:
            text = (
                f"{row['family']} on communicator {row['communicator'] or '(not named)'}: {row['calls']} calls are no "
                f"multiple of {layers} layers × {steps} steps; {extra} are left over, another collective is mixed in "
                "(per-layer offload, tensor parallelism, an encoder or decoder): prove it by a run with offload off"
            )
            found.append(Finding("remainder", text, (row["rank"],)))
    return by_text(found)


def concurrency(table: pd.DataFrame) -> list[Finding]:
    """Say where union ÷ sum is below 1: calls run at the same time, so their sum is occupancy and not exposure."""
    found = [
        Finding(
            "concurrent",
            f"{row['family']} on communicator {row['communicator'] or '(not named)'} runs concurrently with itself "
            "(union ÷ sum below 1): its sum is occupancy, not transfer time",
            (row["rank"],),
        )
        for row in table.to_dict("records")
        if row["union_over_sum"] < SERIAL
    ]
    return by_text(found)
