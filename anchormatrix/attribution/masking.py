"""The masking bound: how much of a family's communication compute can hide, how much it did hide, what that says."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pandas as pd

from anchormatrix.attribution.bubbles import choose_group
from anchormatrix.attribution.collectives import SERIAL, Group, groups_of
from anchormatrix.attribution.hiding import DRAIN_RATIO, bound, usable_chunks
from anchormatrix.attribution.intervals import ms, optional, union_of
from anchormatrix.attribution.layers import Attention, attention_of
from anchormatrix.attribution.steps import compute_mask
from anchormatrix.captures.table import Capture
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import MaskBound

WHOLE_STEP = "step"
_OTHER_SHARE = 0.05


@dataclass(frozen=True)
class MaskOptions:
    """Inputs of the bound. ``layers`` (None: all figures per step); ``chunks`` requested
    (None: as many as attention kernels per layer); ``local_heads`` limits the
    chunks to a divisor; ``attention``: part of an attention kernel's name; ``family``: ``alltoall``, ``alltoall:445``
    or ``step`` for all communication; ``communicator``; ``unprofiled_step_s``: step time measured without the
    profiler."""

    layers: int | None = None
    chunks: int | None = None
    attention: str | None = None
    drain_ratio: float = DRAIN_RATIO
    family: str | None = None
    communicator: str | None = None
    local_heads: int | None = None
    unprofiled_step_s: float | None = None


def mask_bounds(capture: Capture, steps: pd.DataFrame, step: int, options: MaskOptions) -> list[MaskBound]:
    """Return the bound of every rank for one step; ``steps`` is :func:`anchormatrix.attribution.steps.decompose`.

    Raises :class:`InputError` when the family, its communicator or the attention kernels are not in the step: the
    step's total is never put in their place.
    """
    rows = {row["rank"]: row for row in steps[steps["step"] == step].to_dict("records")}
    return [_rank_bound(rank, kernels, rows[rank], options) for rank, kernels in capture.per_rank(step)]


def _rank_bound(rank: int, kernels: pd.DataFrame, row: Mapping[Hashable, Any], options: MaskOptions) -> MaskBound:
    groups = groups_of(kernels)
    attention = attention_of(kernels, options.attention)
    hide = int((attention.end - attention.start).sum())
    if not hide:
        wanted = f"{options.attention!r}" if options.attention else "that looks like attention"
        raise InputError(
            f"rank {rank} has no compute kernel {wanted} in this step", where="masking", todo="name it with --fa-name"
        )
    chosen = _masked(groups, options)
    total = int(row["communication_ns"]) if chosen is None else chosen.sum_ns
    requested = options.chunks or _chunks_seen(attention, options.layers)
    chunks = usable_chunks(requested, options.local_heads)
    per = options.layers or 1
    communication = int(row["communication_ns"])
    measured = int(row["overlapped_ns"]) / communication if communication else 0.0
    ceiling = bound(total, hide, chunks, options.drain_ratio)
    found = MaskBound(
        rank=rank,
        family=chosen.family if chosen else WHOLE_STEP,
        communicator=chosen.communicator if chosen else "",
        chunks=chunks,
        c_total_ms=ms(total / per),
        f_total_ms=ms(hide / per),
        c_ms=ms(total / per / chunks),
        f_ms=ms(hide / per / chunks),
        c_over_f=optional((total / per / chunks) / (hide / per / chunks)),
        ideal=round(1 - 1 / chunks, 6),
        bound=round(ceiling, 6),
        measured=round(measured, 6),
        measured_family=optional(_hidden_share(chosen, kernels)),
        achievement=optional(measured / ceiling if ceiling > 0 else None),
        exposed_ms=ms(row["exposed_ns"]),
        warnings=(),
    )
    warnings = (*_chunk_warnings(found, requested, options), *_warnings(found, groups, chosen, options))
    return _timed(msgspec.structs.replace(found, warnings=warnings), total / per, hide / per, row, options)


def _timed(
    found: MaskBound, c_total_ns: float, f_total_ns: float, row: Mapping[Hashable, Any], options: MaskOptions
) -> MaskBound:
    """The bound as captured, and, where the step without the profiler is known, as the timed step has it.

    The profiler stretches the attention kernels that hide and not the communication to be hidden, so near c = f a bound
    of captured times is optimistic. F is deflated by captured computing and idle time ÷ (step without the profiler −
    exposed).
    """
    rest_ns = (options.unprofiled_step_s or 0.0) * 1e9 - float(row["exposed_ns"])
    captured_ns = float(row["computing_ns"]) + float(row["free_ns"])
    if rest_ns <= 0 or captured_ns <= 0:
        return found
    hiding_ns = f_total_ns * rest_ns / captured_ns
    ratio = c_total_ns / hiding_ns if hiding_ns else None
    warnings = found.warnings
    if ratio is not None and ratio > 1 >= (found.c_over_f or 0.0):
        text = f"c/f is {ratio:.2f} with attention as long as without the profiler: the captured bound is optimistic"
        warnings = (*warnings, text)
    return msgspec.structs.replace(
        found,
        f_timed_ms=ms(hiding_ns),
        c_over_f_timed=optional(ratio),
        bound_timed=round(bound(c_total_ns, hiding_ns, found.chunks, options.drain_ratio), 6),
        warnings=warnings,
    )


def _masked(groups: list[Group], options: MaskOptions) -> Group | None:
    if not groups:
        raise InputError("no collective in this step, so nothing to mask", where="masking")
    if options.family == WHOLE_STEP:
        return None
    if options.communicator is not None:
        groups = [group for group in groups if group.communicator == options.communicator]
        if not groups:
            raise InputError(f"no collective on communicator {options.communicator!r} in this step", where="masking")
    return choose_group(groups, options.family)


def _hidden_share(group: Group | None, kernels: pd.DataFrame) -> float | None:
    """Return which share of the masked group's own time compute hides."""
    if group is None or not group.union.total:
        return None
    return (group.union & union_of(kernels, compute_mask(kernels))).total / group.union.total


def _chunks_seen(attention: Attention, layers: int | None) -> int:
    kernels = len(attention.start)
    return kernels // layers if layers and kernels >= layers and kernels % layers == 0 else 1


def _chunk_warnings(found: MaskBound, requested: int, options: MaskOptions) -> Iterator[str]:
    if options.chunks is None:
        yield f"chunks were not given: {requested} taken from the attention kernels per layer"
    if found.chunks != requested:
        yield f"{requested} chunks do not divide {options.local_heads} local heads; {found.chunks} are used"
    if found.chunks == 1:
        yield "one chunk hides nothing: the bound is 0"


def _warnings(found: MaskBound, groups: list[Group], chosen: Group | None, options: MaskOptions) -> Iterator[str]:
    if found.achievement is not None and found.achievement > 1:
        text = (
            f"achievement is {found.achievement:.0%}: wrong family or communicator, or compute counted as communication"
        )
        reach = found.f_total_ms / found.c_total_ms
        if found.measured <= min(1.0, reach):
            text += (
                f" (attention is long enough to hide {min(1.0, reach):.0%}: or this schedule fills and drains faster)"
            )
        yield text
    if found.c_over_f is not None and found.c_over_f > 1:
        yield f"c/f is {found.c_over_f:.2f}: transfers are longer than what hides them, more chunks do not help"
    if options.layers is None:
        yield "the number of layers is not known: C, F, c and f are per step, not per layer"
    if chosen is None:
        return
    same = [group.label for group in groups if group.family == chosen.family and group is not chosen]
    if same and options.communicator is None:
        yield f"C is {chosen.label} alone; the same family also runs on {', '.join(same)}"
    union = chosen.union.total
    if chosen.sum_ns and union / chosen.sum_ns < SERIAL:
        yield f"{chosen.label} runs concurrently with itself: C is occupancy, not transfer time"
    others = sum(group.sum_ns for group in groups if group is not chosen)
    if others > _OTHER_SHARE * (others + chosen.sum_ns):
        share = chosen.sum_ns / (others + chosen.sum_ns)
        yield (
            f"{chosen.label} makes up {share:.0%} of the communication: the bound speaks of it alone, "
            "the measured share of all communication"
        )
    if not math.isclose(options.drain_ratio, DRAIN_RATIO) and not 0.25 <= options.drain_ratio <= 1 / 3 + 1e-9:
        yield f"drain ratio {options.drain_ratio:g} lies outside a quarter to a third"
