"""Projections: what a form's step would be if one thing were fixed, and at which level of it the order reverses.

A projection changes one kind of cost and keeps every other measured cost of both sides. It is never a measurement.
"""

from __future__ import annotations

from anchormatrix.decide.evidence import FormEvidence, extra_computing
from anchormatrix.records.gates import Fix, Projection


def seconds(value: float) -> str:
    """A step time: milliseconds are told, and of very short steps four digits."""
    return f"{value:.3f} s" if abs(value) >= 1 or not value else f"{value:.4g} s"


def milliseconds(value: float) -> str:
    """A part of a step: tenths are told, and of very short parts three digits."""
    return f"{value:.1f} ms" if abs(value) >= 1 or not value else f"{value:.3g} ms"


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
    step_s, reachable = measured - (level_ms - target_ms) / 1e3, threshold >= 0 and level_ms > 0
    change = 100 * (step_s / against - 1)
    if reachable:
        tail = f"the order reverses when {quantity} falls below "
        tail += f"{milliseconds(threshold)} (measured {milliseconds(level_ms)})"
    else:
        tail = f"this alone cannot reverse the order ({quantity} is {milliseconds(level_ms)})"
    return Projection(
        fix=fix,
        form=slower.form.name,
        against=faster.form.name,
        measured_s=measured,
        step_s=step_s,
        against_s=against,
        quantity=quantity,
        unit="ms",
        level=level_ms,
        projected_level=target_ms,
        threshold=threshold if reachable else None,
        reverses=step_s < against,
        text=f"Projection: with {fix.words}, {slower.form.name} would take {seconds(step_s)} per step, "
        f"{abs(change):.1f} % {'below' if change < 0 else 'above'} {faster.form.name}'s measured {seconds(against)}; "
        f"{tail}. {why}",
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
