"""Sessions for tests of the adaptive design."""

from __future__ import annotations

from measured import timed_session

from anchormatrix.planning.adaptive import next_order
from anchormatrix.planning.adaptive_state import AdaptiveLimits

LIMITS = AdaptiveLimits()
FORMS = ("tp1-usp4", "tp2-usp2", "tp4-usp1")


def session(form, window, step_s, *, spread_pct=0.4, repeats=3, status="measured"):
    half = spread_pct / 200
    values = tuple(step_s * factor for factor in (1.0, 1 - half, 1 + half))[:repeats]
    return timed_session(form, window, {"few": values, "anchor": values} if status == "measured" else {}, status)


def walk(steps, limits=LIMITS, forms=FORMS, **more):
    """Follow the policy on a host whose forms have these steps; returns the orders measured and the sessions."""
    orders, seen = [], []
    while (order := next_order(forms, seen, limits)) is not None:
        assert len(orders) < 50
        orders.append(order)
        repeats = 1 if order.stop([steps[order.form]]) else order.repeats
        seen.append(session(order.form, order.window, steps[order.form], repeats=repeats, **more))
    return orders, seen
