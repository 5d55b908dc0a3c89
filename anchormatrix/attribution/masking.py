"""The masking bound: how much of a family's communication compute can hide, how much it did hide, what that says."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from anchormatrix.attribution.bubbles import choose_group
from anchormatrix.attribution.collectives import SERIAL, Group, groups_of
from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.attribution.hiding import DRAIN_RATIO, bound, estimate, usable_chunks
from anchormatrix.attribution.intervals import ms, optional, union, union_of
from anchormatrix.attribution.layers import Attention, attention_of
from anchormatrix.captures.table import Capture
from anchormatrix.errors import InputError
from anchormatrix.records.waits import MaskBound

WHOLE_STEP = "step"
_OTHER_SHARE = 0.05


@dataclass(frozen=True)
class MaskOptions:
    """Inputs of the bound. ``layers`` (None: all figures per step); ``chunks`` requested
    (None: as many as attention kernels per layer); ``local_heads`` limits the
    chunks to a divisor; ``attention``: part of an attention kernel's name; ``drain_ratio``: of the source's estimate;
    ``family``: ``alltoall``, ``alltoall:445`` or ``step`` for all communication; ``communicator``;
    ``unprofiled_step_s``: step time measured without the profiler."""

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
    requested = options.chunks or _chunks_seen(attention, options.layers)
    chunks = usable_chunks(requested, options.local_heads)
    total, alone = chosen.sum_ns, _alone_ns(chosen, attention, chunks, options.layers)
    per = options.layers or 1
    communication = int(row["communication_ns"])
    ceiling = bound(total, hide, alone or 0.0)
    under = (chosen.union & union(attention.start, attention.end)).total / total if total else 0.0
    found = MaskBound(
        rank=rank,
        family=chosen.family,
        communicator=chosen.communicator,
        chunks=chunks,
        c_total_ms=ms(total / per),
        f_total_ms=ms(hide / per),
        c_ms=ms(total / per / chunks),
        f_ms=ms(hide / per / chunks),
        c_over_f=optional(total / hide),
        ideal=round(1 - 1 / chunks, 6),
        bound=round(ceiling, 6),
        estimate=round(estimate(total, hide, chunks, options.drain_ratio), 6),
        measured=round(int(row["overlapped_ns"]) / communication if communication else 0.0, 6),
        measured_family=optional(_hidden_share(chosen, kernels)),
        under_attention=round(under, 6),
        achievement=optional(under / ceiling if ceiling > 0 else None),
        exposed_ms=ms(row["exposed_ns"]),
        warnings=(),
    )
    warnings = (
        *_contradiction(found, len(attention.start), options),
        *_chunk_warnings(found, requested, options, unequal=alone is None),
        *_warnings(found, groups, chosen, options),
    )
    return _timed(msgspec.structs.replace(found, warnings=warnings), (alone or 0.0) / per, row, options)


def _alone_ns(group: Group, attention: Attention, chunks: int, layers: int | None) -> float | None:
    """The family's time that no attention can hide: in every layer the forward calls of the first chunk and the reverse
    calls of the last.

    Names do not tell forward from reverse, so the split of a chunk's calls that leaves least counts. A capture that is
    not chunked as asked has an equal share of the total. None where a layer's calls are no equal chunks (a ring's first
    turn needs none, or another collective is mixed in): then nothing is known to run alone.
    """
    passes, rest = divmod(len(attention.start), chunks)
    if rest or (layers and passes % layers):
        return group.sum_ns / chunks
    each, rest = divmod(len(group.start), passes * chunks)
    if rest:
        return None
    calls = (group.end - group.start).reshape(passes, each * chunks)
    forward = np.concatenate([[0], np.cumsum(calls.sum(axis=0))])  # of the first k calls of all layers
    return float(min(forward[k] + forward[-1] - forward[len(forward) - 1 - each + k] for k in range(each + 1)))


def _timed(found: MaskBound, alone_ns: float, row: Mapping[Hashable, Any], options: MaskOptions) -> MaskBound:
    """The bound as captured, and, where the step without the profiler is known, as the timed step has it.

    The profiler stretches the attention kernels that hide and not the communication to be hidden, so near c = f a bound
    of captured times is optimistic. F is deflated by captured computing and idle time ÷ (step without the profiler −
    exposed).
    """
    rest_ns = (options.unprofiled_step_s or 0.0) * 1e9 - float(row["exposed_ns"])
    captured_ns = float(row["computing_ns"]) + float(row["host_ns"]) + float(row["free_ns"])
    if rest_ns <= 0 or captured_ns <= 0:
        return found
    c_total_ms, hiding_ms = found.c_total_ms, found.f_total_ms * rest_ns / captured_ns
    ratio = c_total_ms / hiding_ms if hiding_ms else None
    warnings = found.warnings
    if ratio is not None and ratio > 1 >= (found.c_over_f or 0.0):
        text = f"c/f is {ratio:.2f} with attention as long as without the profiler: the captured bound is optimistic"
        warnings = (*warnings, text)
    return msgspec.structs.replace(
        found,
        f_timed_ms=round(hiding_ms, 6),
        c_over_f_timed=optional(ratio),
        bound_timed=round(bound(c_total_ms, hiding_ms, ms(alone_ns)), 6),
        warnings=warnings,
    )


def _masked(groups: list[Group], options: MaskOptions) -> Group:
    if not groups:
        raise InputError("no collective in this step, so nothing to mask", where="masking")
    if options.family == WHOLE_STEP:
        order = np.argsort(np.concatenate([group.start for group in groups]), kind="stable")
        start, end = (np.concatenate([getattr(group, side) for group in groups])[order] for side in ("start", "end"))
        return Group(WHOLE_STEP, "", start, end)
    if options.communicator is not None:
        groups = [group for group in groups if group.communicator == options.communicator]
        if not groups:
            raise InputError(f"no collective on communicator {options.communicator!r} in this step", where="masking")
    return choose_group(groups, options.family) or groups[0]


def _hidden_share(group: Group, kernels: pd.DataFrame) -> float | None:
    """Return which share of the masked group's own time compute of any kind hides."""
    if not group.union.total:
        return None
    return (group.union & union_of(kernels, compute_mask(kernels))).total / group.union.total


def _chunks_seen(attention: Attention, layers: int | None) -> int:
    kernels = len(attention.start)
    return kernels // layers if layers and kernels >= layers and kernels % layers == 0 else 1


def _chunk_warnings(found: MaskBound, requested: int, options: MaskOptions, *, unequal: bool) -> Iterator[str]:
    if options.chunks is None:
        yield f"chunks were not given: {requested} taken from the attention kernels per layer"
    if found.chunks != requested:
        yield f"{requested} chunks do not divide {options.local_heads} local heads; {found.chunks} are used"
    if unequal:
        yield f"the calls of {found.family} are not {found.chunks} equal chunks a layer: only attention bounds it"
    elif found.chunks == 1:
        yield "one chunk hides nothing: the bound is 0"


def _contradiction(found: MaskBound, kernels: int, options: MaskOptions) -> Iterator[str]:
    """Which input the capture contradicts: a schedule of the chunks given never exceeds their bound."""
    if found.achievement is None or found.achievement <= 1:
        return
    passes, rest = divmod(kernels, found.chunks)
    text = f"attention hides {found.under_attention:.0%} of {found.family} and the bound is {found.bound:.0%}: "
    if rest or (options.layers and passes % options.layers):
        layers = f" in {options.layers} layers" if options.layers else ""
        yield f"{text}the attention kernels ({kernels}{layers}) are not {found.chunks} chunks a layer"
    else:
        yield (
            f"{text}attention runs during exchanges that it should wait for, so {found.family} is not the family that "
            "brings its input, another collective is mixed in, or two forwards are in flight"
        )


def _warnings(found: MaskBound, groups: list[Group], chosen: Group, options: MaskOptions) -> Iterator[str]:
    if found.f_total_ms < found.ideal * found.c_total_ms:
        yield f"c/f is {found.c_over_f:.2f}: attention is too short to hide the transfers, more chunks do not help"
    if options.layers is None:
        yield "the number of layers is not known: C, F, c and f are per step, not per layer"
    if chosen.family == WHOLE_STEP:
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
