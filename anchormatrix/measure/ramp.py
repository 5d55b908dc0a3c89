"""The ramp: the first requests after a start are often faster than the steady state and must not be timed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence


def first_steady(step_s: Sequence[float], tolerance_pct: float, steps: Sequence[int] | None = None) -> int | None:
    """Index of the first request of the steady state, or ``None`` when the requests never settle.

    A request is steady when from it on all requests with the same number of steps agree within ``tolerance_pct``
    (largest minus smallest ÷ median) and at least two requests lie there. The first request never is. ``steps`` are the
    steps of each request (default: all alike): tiers are compared only within themselves, since a step of one tier may
    truly cost more than a step of another.
    """
    kinds = [0] * len(step_s) if steps is None else list(steps)
    behind: dict[int, list[float]] = {}  # the values from a request on, sorted, by kind: grown from the end
    unsettled: set[int] = set()
    found = None
    for start in range(len(step_s) - 1, 0, -1):
        kind = kinds[start]
        values = behind.setdefault(kind, [])
        insort(values, step_s[start])
        spread = (values[-1] - values[0]) / _middle(values) * 100
        (unsettled.discard if spread <= tolerance_pct else unsettled.add)(kind)
        if not unsettled and start < len(step_s) - 1:
            found = start
    return found


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
