"""Captured steps of a contract's forms beside one another: which may be compared, and what differs between them."""

from __future__ import annotations

from itertools import pairwise

from anchormatrix.report.model import Measured
from anchormatrix.report.step_breakdown import COLUMNS, Anatomy, RankStep

PART_WORDS = {
    "computing": "computing",
    "exposed": "exposed communication",
    "free": "free",
    "bubble": "pipeline bubble",
}
_ALIKE = 1.2  # times the least stretched form; step times scatter by a few percent, the profiler's cost by some more


def analysed(measured: Measured) -> dict[str, Anatomy]:
    """The forms of a contract whose capture was analysed."""
    parts = {form: part.value for form, part in measured.anatomy.items()}
    return {form: anatomy for form, anatomy in parts.items() if anatomy and anatomy.ranks}


def unlike_timed(measured: Measured) -> tuple[str, ...]:
    """Forms whose captured step the profiler seems to have stretched far more than the least stretched of the contract.

    The profiler costs forms of one contract about the same, so a step that stands out was slow by itself: a capture
    takes the first step of its request, which need not be like the steps that were timed.
    """
    stretched = {form: anatomy.stretch for form, anatomy in analysed(measured).items() if anatomy.stretch}
    least = min(stretched.values(), default=0.0)
    return tuple(form for form, stretch in stretched.items() if stretch > _ALIKE * least)


def why_not_analysed(measured: Measured) -> str:
    """Why there is no attribution of forms of this contract, forms with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for form, part in measured.anatomy.items():
        if part.value is None:
            reasons.setdefault(part.missing, []).append(form)
        elif not part.value.ranks:
            reasons.setdefault(part.value.reason or part.value.status, []).append(form)
    told = [f"{', '.join(forms)}: {reason}" for reason, forms in reasons.items()]
    return "; ".join(told) or "no form of this contract was measured"


def why_without(measured: Measured, analysis: str, otherwise: str) -> str:
    """Why no analysed form of this contract has one of the analyses; ``otherwise`` when no form says so."""
    reasons = [f"{form}: {why}" for form, anatomy in analysed(measured).items() if (why := anatomy.why_not(analysis))]
    return "; ".join(reasons) or otherwise


def pairs(measured: Measured) -> list[tuple[str, str]]:
    """The pairs of forms to subtract: the winner against every other one; without a winner, neighbours."""
    forms = list(analysed(measured))
    winner = measured.verdict.value.winner if measured.verdict.value else None
    if winner in forms:
        return [(winner, form) for form in forms if form != winner]
    return list(pairwise(forms))


def delta(a: RankStep, b: RankStep) -> tuple[dict[str, float], float, float]:
    """Δ of every part from ``a`` to ``b``, ΔStage, and the residual ΔStage − Σ Δ; in milliseconds."""
    parts = {part: getattr(b, part) - getattr(a, part) for part in COLUMNS}
    stage = b.stage - a.stage
    return parts, stage, stage - sum(parts.values())
