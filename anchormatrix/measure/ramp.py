"""The ramp: the first requests after a start are often faster than the steady state and must not be timed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def first_steady(step_s: Sequence[float], tolerance_pct: float, steps: Sequence[int] | None = None) -> int | None:
    """Index of the first request of the steady state, or ``None`` when the requests never settle.

    A request is steady when from it on all requests with the same number of steps agree within ``tolerance_pct``
    (largest minus smallest ÷ median) and at least two requests lie there. The first request never is. ``steps`` are the
    steps of each request (default: all alike): tiers are compared only within themselves, since a step of one tier may
    truly cost more than a step of another.
    """
    kinds = [0] * len(step_s) if steps is None else list(steps)
    for start in range(1, len(step_s) - 1):
        tail = list(zip(kinds[start:], step_s[start:], strict=True))
        alike = [[value for kind, value in tail if kind == wanted] for wanted in set(kinds[start:])]
        if all(spread_pct(values) <= tolerance_pct for values in alike):
            return start
    return None


def spread_pct(values: Sequence[float]) -> float:
    """(largest − smallest) ÷ median, in percent; 0 for a single value."""
    return (max(values) - min(values)) / median(values) * 100 if values else 0.0
