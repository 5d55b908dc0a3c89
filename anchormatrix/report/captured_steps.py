"""Captured steps of a contract's forms: what each attribution tells, which may be compared, what sets them apart."""

from __future__ import annotations

from itertools import pairwise

from anchormatrix.attribution.slowest import slowest_rank
from anchormatrix.decide import captured
from anchormatrix.records.attribution import Attribution, Family, StageDelta, StepRow
from anchormatrix.records.waits import MaskBound, Timeline
from anchormatrix.report.model import Measured

PART_WORDS = {
    "computing": "computing",
    "exposed": "exposed communication",
    "host": "host overhead",
    "free": "free",
    "bubble": "pipeline bubble",
}
COLUMNS = tuple(PART_WORDS)


def step_rows(attribution: Attribution) -> tuple[StepRow, ...]:
    """The captured step of every rank; empty when the capture was not analysed."""
    return attribution.steps.ranks if attribution.steps else ()


def part_ms(row: StepRow | StageDelta, part: str) -> float:
    """One of ``COLUMNS`` of a rank's step, or of the difference of two, in ms."""
    return float(getattr(row, f"{part}_ms"))


def slowest(attribution: Attribution) -> StepRow | None:
    """The rank that figures show."""
    return slowest_rank(step_rows(attribution))


def families(attribution: Attribution) -> list[Family]:
    """The collective families of every rank."""
    ranks = attribution.collectives.ranks if attribution.collectives else ()
    return [family for rank in ranks for family in rank.families]


def bounds(attribution: Attribution) -> tuple[MaskBound, ...]:
    """The masking bound of every rank."""
    return attribution.masking.ranks if attribution.masking else ()


def layer_of(attribution: Attribution) -> tuple[Timeline, float] | None:
    """One layer in time and its duration in ms, where there is one to draw."""
    found = attribution.timeline
    return (found, found.duration_ms) if found and found.lanes and found.duration_ms else None


def analysed(measured: Measured) -> dict[str, Attribution]:
    """The forms of a contract whose capture was analysed."""
    parts = {form: part.value for form, part in measured.attributions.items()}
    return {form: attribution for form, attribution in parts.items() if attribution and step_rows(attribution)}


def unlike_timed(measured: Measured) -> tuple[str, ...]:
    """Forms whose captured step is not like the timed ones, as the decision has it."""
    return captured.unlike_timed(analysed(measured))


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
        if (why := (attribution.missing or {}).get(analysis))
    ]
    return "; ".join(reasons) or otherwise


def pairs(measured: Measured) -> list[tuple[str, str]]:
    """The pairs of forms to subtract: the winner against every other one; without a winner, neighbours."""
    forms = list(analysed(measured))
    winner = measured.verdict.value.winner if measured.verdict.value else None
    if winner in forms:
        return [(winner, form) for form in forms if form != winner]
    return list(pairwise(forms))
