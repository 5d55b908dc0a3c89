"""Projections: what a form's step would be if one thing were fixed, and at which level of it the order reverses.

A projection changes one kind of cost and keeps every other measured cost of both sides. The same is then done for the
other side too, because whatever makes one form faster would be done for both. It is never a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anchormatrix.decide.captured import StepParts
from anchormatrix.decide.evidence import FormEvidence, extra_computing
from anchormatrix.records.conclusions.gates import Fix, Projection

_EACH_LAYER = 0.98  # calls per layer of a family that each layer calls, a few calls more or less
_LITTLE = 0.01  # of the exposed time: a gather of the output changes no order


@dataclass(frozen=True)
class Side:
    """One side of a projection: its evidence and what is known of its communication.

    ``isolated_over_implied`` maps the (family, communicator) compared at equal concurrency to isolated ÷ implied
    bandwidth (above 1: there is something to win); ``halved_time_ratio`` is the time of a call with half the payload ÷
    that with all of it, from the sweep (0.5 without a fixed cost).
    """

    evidence: FormEvidence
    isolated_over_implied: Mapping[tuple[str, str], float] = field(default_factory=dict)
    halved_time_ratio: float | None = None


@dataclass(frozen=True)
class Change:
    """A quantity of one side before and after a fix, in ms per step, and what the fix assumes.

    ``whole``: all that the fix speaks of is known; else it may win more.
    """

    quantity: str
    level_ms: float
    target_ms: float
    why: str
    whole: bool = True

    @property
    def won_s(self) -> float:
        """Seconds per step that the fix wins."""
        return (self.level_ms - self.target_ms) / 1e3


def seconds(value: float) -> str:
    """A step time: milliseconds are told, and of very short steps four digits."""
    return f"{value:.3f} s" if abs(value) >= 1 or not value else f"{value:.4g} s"


def milliseconds(value: float) -> str:
    """A part of a step: tenths are told, and of very short parts three digits."""
    return f"{value:.1f} ms" if abs(value) >= 1 or not value else f"{value:.3g} ms"


def project(
    fix: Fix, slower: Side, faster: Side, *, least: FormEvidence | None = None, noise_floor_pct: float = 1.0
) -> Projection | None:
    """Project ``slower`` with one thing fixed against the measured ``faster``, then both with it.

    ``least`` computes least of the contract's forms (by default ``faster``): more than that is a form's extra
    computing, unless it lies within the noise floor (at least ``noise_floor_pct``). None when there is nothing to fix
    or the evidence may not be read.
    """
    least = least or faster.evidence
    change = _change(fix, slower, least, noise_floor_pct)
    if change is None or change.won_s <= 0 or not slower.evidence.ranked_s or not faster.evidence.ranked_s:
        return None
    other = _change(fix, faster, least, noise_floor_pct)
    found = _made(fix, slower.evidence, faster.evidence, change, other if other and other.whole else None)
    return found if change.whole or found.reverses else None  # part of a fix that reverses nothing says nothing


def all_projections(
    slower: Side, faster: Side, *, least: FormEvidence | None = None, noise_floor_pct: float = 1.0
) -> tuple[Projection, ...]:
    """Every projection the evidence allows, those that reverse the order first."""
    found = [project(fix, slower, faster, least=least, noise_floor_pct=noise_floor_pct) for fix in Fix]
    return tuple(sorted((item for item in found if item), key=lambda item: (not item.reverses, item.step_s)))


def _change(fix: Fix, side: Side, least: FormEvidence, noise_floor_pct: float) -> Change | None:
    """What a fix changes on one side; the same level twice where there is nothing to fix, None where it is unknown."""
    parts = side.evidence.captured
    if parts is None:
        return None
    if fix is Fix.PLUMBING_REMOVED:
        found = extra_computing(side.evidence, least, noise_floor_pct)
        if found is None:
            return None
        extra_ms = found.extra_ms if found.differs else 0.0
        return Change("extra computing", extra_ms, 0.0, "Communication is kept as measured.")
    target_ms, why, whole = _communication(fix, parts, side)
    quantity = "exposed communication per step"
    return None if target_ms is None else Change(quantity, parts.exposed_ms, target_ms, why, whole)


def _communication(fix: Fix, parts: StepParts, side: Side) -> tuple[float | None, str, bool]:
    """Exposed communication per step after a fix, what that assumes, and whether it holds for all families."""
    if fix is Fix.EXPOSED_TO_BOUND:
        return parts.exposed_at_bound_ms, "Computing and idle time are kept as measured.", True
    if fix is Fix.BANDWIDTH_ISOLATED:
        why = "The difference between implied and isolated bandwidth is unexplained; this assumes it can be removed."
        ratios = {key: 1 / max(1.0, ratio) for key, ratio in side.isolated_over_implied.items()}
        share, whole = _scaled(side.evidence, ratios.get) if ratios else (None, False)
        return (None if share is None else parts.exposed_ms * share), why, whole
    ratio = 0.5 if side.halved_time_ratio is None else min(1.0, max(0.0, side.halved_time_ratio))
    known = "bytes alone, without a fixed cost per call" if side.halved_time_ratio is None else "the sweep"
    why = f"Time per call by {known}; the work of making payloads smaller is not included."
    share, whole = _scaled(side.evidence, lambda key: ratio)
    return parts.exposed_ms * (ratio if share is None else share), why, whole or share is None


def _scaled(form: FormEvidence, ratio_of: Callable[[tuple[str, str]], float | None]) -> tuple[float | None, bool]:
    """The share of the exposed time that is left when the calls of a family take so many times as long, and whether
    that is all: a family that was kept could win more. None without times of families, or when none is known.

    A family's part is the time of its calls beside no compute. One with fewer calls than layers (the output's gather, a
    pipeline's broadcast) waits for others rather than carries: it is kept, and shrinks only as they do.
    """
    total_ms = sum(row.exposed_ms or 0.0 for row in form.families)
    if not total_ms:
        return None, False
    left, kept, known = 0.0, 0.0, False
    for row in form.families:
        part = (row.exposed_ms or 0.0) / total_ms
        carries = (row.calls_per_layer or 1.0) * form.form.pp >= _EACH_LAYER
        ratio = ratio_of((row.family, row.communicator)) if carries else None
        known = known or ratio is not None or not carries
        kept += part if ratio is None else 0.0
        left += part * (1.0 if ratio is None else ratio)
    return (left if known else None), kept < _LITTLE


def _made(fix: Fix, slower: FormEvidence, faster: FormEvidence, change: Change, other: Change | None) -> Projection:
    measured, against = slower.ranked_s or 0.0, faster.ranked_s or 0.0
    threshold = change.level_ms - (measured - against) * 1e3
    reachable = threshold >= 0
    step_s, against_step_s = measured - change.won_s, None if other is None else against - other.won_s
    if reachable:
        tail = f"The order reverses when {change.quantity} of {slower.form.name} alone falls below "
        tail += f"{milliseconds(threshold)} (measured {milliseconds(change.level_ms)})."
    else:
        tail = f"This alone cannot reverse the order ({change.quantity} is {milliseconds(change.level_ms)})."
    return Projection(
        fix=fix,
        form=slower.form.name,
        against=faster.form.name,
        measured_s=measured,
        step_s=step_s,
        against_s=against,
        quantity=change.quantity,
        unit="ms",
        level=change.level_ms,
        projected_level=change.target_ms,
        threshold=threshold if reachable else None,
        reverses=step_s < against,
        against_step_s=against_step_s,
        both_reverse=None if against_step_s is None else step_s < against_step_s,
        text=f"Projection: with {fix.words}, {slower.form.name} would take {seconds(step_s)} per step, "
        f"{_apart(step_s, against)} {faster.form.name}'s measured {seconds(against)}: the order "
        f"{_order(step_s < against)}. {_both(faster, step_s, against_step_s)} {tail} {change.why}",
    )


def _both(faster: FormEvidence, step_s: float, against_step_s: float | None) -> str:
    if against_step_s is None:
        why = faster.capture_doubt or "its evidence does not tell"
        return f"What the same would do for {faster.form.name} is unknown: {why}."
    return (
        f"With the same for {faster.form.name}, {seconds(step_s)} stands {_apart(step_s, against_step_s)} its "
        f"{seconds(against_step_s)}: the order {_order(step_s < against_step_s)}."
    )


def _apart(step_s: float, against_s: float) -> str:
    change = 100 * (step_s / against_s - 1)
    return f"{abs(change):.1f} % {'below' if change < 0 else 'above'}"


def _order(reverses: bool) -> str:
    return "reverses" if reverses else "stays"
