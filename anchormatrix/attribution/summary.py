"""Every analysis of one form's capture in one pass: what ``attribution.json`` holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pandas as pd

from anchormatrix.attribution.bubbles import RELEASE_NS, BubbleOptions, bubbles, layer_runs
from anchormatrix.attribution.collectives import collectives, concurrency, groups_of, reconcile
from anchormatrix.attribution.effect import check_effect
from anchormatrix.attribution.findings import by_text
from anchormatrix.attribution.hiding import DRAIN_RATIO, usable_chunks
from anchormatrix.attribution.layers import attention_of
from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.reading import readings
from anchormatrix.attribution.slowest import equal_to_slowest
from anchormatrix.attribution.steps import (
    check_agreement,
    choose_step,
    chosen_step,
    decompose,
    outside,
    step_findings,
    step_rows,
    whole_trace,
)
from anchormatrix.attribution.timeline import layer_timeline
from anchormatrix.captures.cutting.cut import cut
from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.open import LIMIT_PCT, load_capture
from anchormatrix.captures.table import Capture
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import Attribution, AttributionStatus, Steps
from anchormatrix.records.finding import Finding
from anchormatrix.records.form import Form
from anchormatrix.records.waits import Bubbles, MaskBound, Masking, RankBubbles, Timeline

# The family that masking hides, by the degree that causes it, the first that a form has.
_MASKED_FAMILY = (("usp", "alltoall"), ("ag", "allGather"), ("ring", "batchSendRecv"), ("tp", "allReduce"))


@dataclass(frozen=True)
class AttributionOptions:
    """What is known of a capture besides its files.

    ``layers``: of the model; ``chunks``: masking chunks requested (None: the form's, else as seen).
    ``unprofiled_step_s``: step time measured without the profiler, the denominator of the exposed share; None when the
    capture hit the ramp. ``request``: the request that was captured, so that its steps are cut out where it is whole.
    ``unmasked_calls``: calls per rank of the masked family in the same form without masking. The rest: see
    :class:`BubbleOptions` and :class:`MaskOptions`; by default the collective that the form's first degree causes is
    split into forward and reverse calls, one reverse call per chunk of a layer.
    """

    form: Form | None = None
    request: Request | None = None
    layers: int | None = None
    chunks: int | None = None
    local_heads: int | None = None
    unprofiled_step_s: float | None = None
    unmasked_calls: int | None = None
    captured_ranks: int | None = None
    collective: str | None = None
    group_split: int | None = None
    order: str = "auto"
    attention: str | None = None
    release_ns: int = RELEASE_NS
    drain_ratio: float = DRAIN_RATIO


def attribute_directory(
    directory: Path | str,
    options: AttributionOptions,
    *,
    limit_pct: float = LIMIT_PCT,
    every_rank: bool = False,
    contract: str | None = None,
) -> Attribution:
    """Return every analysis of a capture, or why it was refused when it cannot be analysed."""
    try:
        capture = load_capture(directory, limit_pct=limit_pct, every_rank=every_rank)
        if options.request is not None:
            capture = cut(capture, options.request)
        return attribute(capture, options, contract=contract)
    except InputError as error:
        form = options.form.name if options.form else None
        return Attribution(contract=contract, form=form, status=AttributionStatus.REFUSED, reason=str(error))


def attribute(capture: Capture, options: AttributionOptions, *, contract: str | None = None) -> Attribution:
    """Return every analysis of a capture.

    An analysis that does not apply (no attention kernels, no collectives) says why under ``missing`` and leaves its
    list empty. Raises :class:`InputError` when not even the step can be decomposed.
    """
    table = decompose(capture)
    choice = choose_step(table, capture.cut)
    longest = equal_to_slowest(table[table["step"] == choice.step])
    worst = longest[0]
    missing: dict[str, str] = {}
    family = _masked_family(capture, choice.step, options)
    bounds = _bounds(capture, table, choice.step, options, family, missing)
    found = _bubbles(capture, choice.step, options, family, missing)
    effect = check_effect(
        capture,
        options.form,
        layers=options.layers,
        unmasked_calls=options.unmasked_calls,
        mask_family=family or "alltoall",
        captured_ranks=options.captured_ranks,
    )
    groups = collectives(capture, layers=options.layers)
    findings = by_text(
        [
            *capture.findings,
            *step_findings(capture, table, choice.step),
            *reconcile(groups, layers=options.layers),
            *concurrency(groups),
            *(Finding(f"proof: {check.name}", check.text) for check in effect.failures),
        ]
    )
    share = _exposed_share(worst, options.unprofiled_step_s)
    return Attribution(
        contract=contract,
        form=options.form.name if options.form else None,
        status=AttributionStatus.ANALYSED,
        steps=Steps(
            **msgspec.structs.asdict(chosen_step(table, choice)),
            unprofiled_step_s=options.unprofiled_step_s,
            exposed_share=share,
            agreement=check_agreement(capture)[0],
            all=step_rows(table, numbered=True),
            whole_trace=step_rows(whole_trace(capture)),
            outside=outside(capture),
        ),
        collectives=groups,
        masking=Masking(ranks=tuple(bounds)),
        bubbles=Bubbles(ranks=tuple(found)),
        effect=effect,
        timeline=_timeline(capture, choice.step, worst["rank"], options, missing),
        findings=tuple(findings),
        missing=missing,
        reading=readings(longest, share, groups, bounds, found),
        family=capture.family,
        rows_read=capture.rows_read,
        rows_unusable=dict(capture.rows_unusable),
        notes=tuple(capture.notes),
    )


def _exposed_share(worst: dict[str, int], unprofiled_step_s: float | None) -> float | None:
    """Captured exposed seconds ÷ step time measured without the profiler: a capture inflates the step's wall clock
    while the seconds of exposed communication stay, so its own stage is no denominator."""
    return round(worst["exposed_ns"] / 1e9 / unprofiled_step_s, 6) if unprofiled_step_s else None


def _masked_family(capture: Capture, step: int, options: AttributionOptions) -> str | None:
    if options.collective is not None or options.form is None:
        return options.collective
    seen = {group.family for _, kernels in capture.per_rank(step) for group in groups_of(kernels)}
    degrees = options.form.degrees
    wanted = [family for degree, family in _MASKED_FAMILY if degrees[degree] > 1 and family in seen]
    return wanted[0] if wanted else None


def _bounds(
    capture: Capture,
    table: pd.DataFrame,
    step: int,
    options: AttributionOptions,
    family: str | None,
    missing: dict[str, str],
) -> list[MaskBound]:
    chunks = options.chunks or (options.form.mask_chunks if options.form else None)
    wanted = MaskOptions(
        layers=options.layers,
        chunks=chunks,
        attention=options.attention,
        drain_ratio=options.drain_ratio,
        family=family,
        local_heads=options.local_heads,
        unprofiled_step_s=options.unprofiled_step_s,
    )
    try:
        return mask_bounds(capture, table, step, wanted)
    except InputError as error:
        missing["masking"] = str(error)
        return []


def _bubbles(
    capture: Capture, step: int, options: AttributionOptions, family: str | None, missing: dict[str, str]
) -> list[RankBubbles]:
    requested = options.chunks or (options.form.mask_chunks if options.form else 0)
    chunks = usable_chunks(requested, options.local_heads) if requested else 0
    split = options.group_split or _forward_calls(capture, step, options, family, chunks)
    wanted = BubbleOptions(
        layers=options.layers,
        collective=family,
        group_split=split,
        attention=options.attention,
        release_ns=options.release_ns,
        order=options.order,
        chunks=chunks,
    )
    try:
        return bubbles(capture, step, wanted)
    except InputError as error:
        missing["bubbles"] = str(error)
        return []


def _forward_calls(
    capture: Capture, step: int, options: AttributionOptions, family: str | None, chunks: int
) -> int | None:
    """Return the forward calls per layer run of an all-to-all: all but one per attention kernel, which brings its
    output back. None where that does not divide, or the family has no reverse part."""
    if family != "alltoall" or not options.layers:
        return None
    splits = set(_splits(capture, step, options, options.layers, chunks))
    return splits.pop() if len(splits) == 1 else None


def _splits(capture: Capture, step: int, options: AttributionOptions, layers: int, chunks: int) -> Iterator[int | None]:
    for _, kernels in capture.per_rank(step):
        attention = attention_of(kernels, options.attention)
        runs = layer_runs(layers, attention, chunks)
        calls = max((len(g.start) for g in groups_of(kernels) if g.family == "alltoall"), default=0)
        forward = (calls - len(attention.start)) // runs
        divides = calls % runs == 0 and len(attention.start) % runs == 0 and forward > 0
        yield forward if divides else None


def _timeline(capture: Capture, step: int, rank: int, options: AttributionOptions, missing: dict[str, str]) -> Timeline:
    if rank not in capture.ranks:
        missing["timeline"] = f"rank {rank} has no kernel table"
        return Timeline()
    try:
        return layer_timeline(
            rank,
            step,
            capture.of_rank(rank, step),
            layers=options.layers,
            attention=options.attention,
            release_ns=options.release_ns,
        )
    except InputError as error:
        missing["timeline"] = str(error)
        return Timeline()
