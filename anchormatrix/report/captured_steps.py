"""Captured steps of a contract's forms beside one another: which may be compared, and what differs between them."""

from __future__ import annotations

from itertools import pairwise

from anchormatrix.records.attribution import Attribution, StepRow
from anchormatrix.report.model import Measured
from anchormatrix.report.step_breakdown import COLUMNS, part_ms, step_rows, stretch, why_not_made

PART_WORDS = {
    "computing": "computing",
    "exposed": "exposed communication",
    "free": "free",
    "bubble": "pipeline bubble",
}
_ALIKE = 1.2  # times the least stretched form; step times scatter by a few percent, the profiler's cost by some more


def analysed(measured: Measured) -> dict[str, Attribution]:
    """The forms of a contract whose capture was analysed."""
    parts = {form: part.value for form, part in measured.attributions.items()}
    return {form: attribution for form, attribution in parts.items() if attribution and step_rows(attribution)}


def unlike_timed(measured: Measured) -> tuple[str, ...]:
    """Forms whose captured step the profiler seems to have stretched far more than the least stretched of the contract.

    The profiler costs forms of one contract about the same, so a step that stands out was slow by itself: a capture
    takes the first step of its request, which need not be like the steps that were timed.
    """
    stretched = {form: factor for form, attribution in analysed(measured).items() if (factor := stretch(attribution))}
    least = min(stretched.values(), default=0.0)
    return tuple(form for form, factor in stretched.items() if factor > _ALIKE * least)


def why_not_analysed(measured: Measured) -> str:
    """Why there is no attribution of forms of this contract, forms with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for form, part in measured.attributions.items():
        if part.value is None:
            reasons.setdefault(part.missing, []).append(form)
        elif not step_rows(part.value):
            reasons.setdefault(part.value.reason or part.value.status, []).append(form)
    told = [f"{', '.join(forms)}: {reason}" for reason, forms in reasons.items()]
    return "; ".join(told) or "no form of this contract was measured"


def why_without(measured: Measured, analysis: str, otherwise: str) -> str:
    """Why no analysed form of this contract has one of the analyses; ``otherwise`` when no form says so."""
    reasons = [
        f"{form}: {why}"
        for form, attribution in analysed(measured).items()
        if (why := why_not_made(attribution, analysis))
    ]
    return "; ".join(reasons) or otherwise


def pairs(measured: Measured) -> list[tuple[str, str]]:
    """The pairs of forms to subtract: the winner against every other one; without a winner, neighbours."""
    forms = list(analysed(measured))
    winner = measured.verdict.value.winner if measured.verdict.value else None
    if winner in forms:
        return [(winner, form) for form in forms if form != winner]
    return list(pairwise(forms))


def delta(a: StepRow, b: StepRow) -> tuple[dict[str, float], float, float]:
    """Δ of every part from ``a`` to ``b``, ΔStage, and the residual ΔStage − Σ Δ; in milliseconds."""
    parts = {part: part_ms(b, part) - part_ms(a, part) for part in COLUMNS}
    stage = b.stage_ms - a.stage_ms
    return parts, stage, stage - sum(parts.values())
