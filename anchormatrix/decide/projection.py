"""Projections: what a form's step would be if one thing were fixed, and at which level of it the order reverses.

A projection changes one kind of cost and keeps every other measured cost of both sides. It is never a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anchormatrix.decide.evidence import FormEvidence, extra_computing
from anchormatrix.decide.words import milliseconds, seconds


class Fix(Enum):
    """The one thing a projection changes."""

    EXPOSED_TO_BOUND = "exposed communication at its masking bound"
    BANDWIDTH_ISOLATED = "in-model bandwidth at the isolated level"
    PAYLOAD_HALVED = "communication payload halved"
    PLUMBING_REMOVED = "the form's extra computing removed"


@dataclass(frozen=True)
class Projection:
    """If ``fix`` were done for ``form``. ``step_s`` is the projected step, ``measured_s`` the measured one.

    ``threshold`` is the level of the quantity named by ``quantity`` at which the order against ``against`` reverses,
    None when this fix alone cannot reverse it; ``level`` is the quantity's measured value.
    """

    fix: Fix
    form: str
    against: str
    measured_s: float
    step_s: float
    against_s: float
    quantity: str
    unit: str
    level: float
    projected_level: float
    threshold: float | None
    assumption: str

    @property
    def reverses(self) -> bool:
        """Whether the projected step is below the other side's measured step."""
        return self.step_s < self.against_s

    @property
    def text(self) -> str:
        """One sentence, marked as a projection."""
        head = f"Projection: with {self.fix.value}, {self.form} would take {seconds(self.step_s)} per step"
        change = 100 * (self.step_s / self.against_s - 1)
        side = f"{abs(change):.1f} % {'below' if change < 0 else 'above'} {self.against}'s measured "
        side += seconds(self.against_s)
        if self.threshold is None:
            tail = f"this alone cannot reverse the order ({self.quantity} is {milliseconds(self.level)})"
        else:
            tail = f"the order reverses when {self.quantity} falls below "
            tail += f"{milliseconds(self.threshold)} (measured {milliseconds(self.level)})"
        return f"{head}, {side}; {tail}. {self.assumption}"

    def as_dict(self) -> dict[str, object]:
        """JSON values."""
        return {
            "projection": True,
            "fix": self.fix.name.lower(),
            "form": self.form,
            "against": self.against,
            "measured_s": self.measured_s,
            "step_s": self.step_s,
            "against_s": self.against_s,
            "quantity": self.quantity,
            "unit": self.unit,
            "level": self.level,
            "projected_level": self.projected_level,
            "threshold": self.threshold,
            "reverses": self.reverses,
            "text": self.text,
        }


def project(
    fix: Fix,
    slower: FormEvidence,
    faster: FormEvidence,
    *,
    isolated_over_implied: float | None = None,
    halved_time_ratio: float | None = None,
    noise_floor_pct: float = 1.0,
) -> Projection | None:
    """Project ``slower`` with one thing fixed against the measured ``faster``; None when evidence is missing.

    ``isolated_over_implied`` is isolated ÷ implied bandwidth at equal concurrency (above 1: there is something to win);
    ``halved_time_ratio`` is the time of a call with half the payload ÷ that with all of it, from the sweep (0.5 without
    a fixed cost). Exposed communication shrinks in proportion to the communication it belongs to. Extra computing
    within the noise floor (at least ``noise_floor_pct``), or less than the other side's, is nothing to remove.
    """
    parts = slower.parts
    if parts is None or parts.unlike_timed or not slower.step_anchor_s or not faster.step_anchor_s:
        return None
    if fix is Fix.PLUMBING_REMOVED:
        found = extra_computing(slower, faster, noise_floor_pct)
        if found is None or not found.differs:
            return None
        return _made(fix, slower, faster, "extra computing", found.extra_ms, 0.0, "Communication is kept as measured.")
    level, target, why = parts.exposed_ms, None, ""
    if fix is Fix.EXPOSED_TO_BOUND:
        target, why = parts.exposed_at_bound_ms, "Computing and idle time are kept as measured."
    elif fix is Fix.BANDWIDTH_ISOLATED and isolated_over_implied and isolated_over_implied > 0:
        target = level / max(1.0, isolated_over_implied)
        why = (
            "The difference between implied and isolated bandwidth is unexplained; this assumes that it can be removed."
        )
    elif fix is Fix.PAYLOAD_HALVED:
        ratio = 0.5 if halved_time_ratio is None else halved_time_ratio
        target = level * min(1.0, max(0.0, ratio))
        known = "the sweep" if halved_time_ratio is not None else "bytes alone, without a fixed cost per call"
        why = f"Time per call by {known}; the work of making payloads smaller is not included."
    if target is None:
        return None
    return _made(fix, slower, faster, "exposed communication per step", level, target, why)


def _made(
    fix: Fix, slower: FormEvidence, faster: FormEvidence, quantity: str, level_ms: float, target_ms: float, why: str
) -> Projection:
    measured, against = slower.step_anchor_s or 0.0, faster.step_anchor_s or 0.0
    threshold = level_ms - (measured - against) * 1e3
    return Projection(
        fix,
        slower.form.name,
        faster.form.name,
        measured,
        measured - (level_ms - target_ms) / 1e3,
        against,
        quantity,
        "ms",
        level_ms,
        target_ms,
        threshold if threshold >= 0 and level_ms > 0 else None,
        why,
    )


def all_projections(
    slower: FormEvidence,
    faster: FormEvidence,
    *,
    isolated_over_implied: float | None = None,
    halved_time_ratio: float | None = None,
    noise_floor_pct: float = 1.0,
) -> tuple[Projection, ...]:
    """Every projection the evidence allows, those that reverse the order first."""
    found = [
        project(
            fix,
            slower,
            faster,
            isolated_over_implied=isolated_over_implied,
            halved_time_ratio=halved_time_ratio,
            noise_floor_pct=noise_floor_pct,
        )
        for fix in Fix
    ]
    return tuple(sorted((item for item in found if item), key=lambda item: (not item.reverses, item.step_s)))
