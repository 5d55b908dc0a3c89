"""Sessions for tests of the adaptive design."""

from __future__ import annotations

from measured import timed_session

from anchormatrix.planning.adaptive import MatrixDesign, next_order
from anchormatrix.planning.ranking import Rule

DESIGN = MatrixDesign(repeats=3, windows=8, adaptive=True, rule=Rule())
FORMS = ("tp1-usp4", "tp2-usp2", "tp4-usp1")


def session(form, window, step_s, *, spread_pct=0.4, status="measured", repeats=3):
    half = spread_pct / 200
    values = tuple(step_s * factor for factor in (1.0, 1 - half, 1 + half))[:repeats]
    return timed_session(form, window, {"few": values, "anchor": values} if status == "measured" else {}, status)


def walk(steps, design=DESIGN, forms=FORMS, status="measured"):
    """Follow the design on a host whose starts have these steps: of each form, one a window, the last for ever.

    Returns the places measured and the sessions.
    """
    places, seen = [], []
    while (order := next_order(forms, seen, design)) is not None:
        assert len(places) < 50
        places.append((order.form, order.window))
        own = steps[order.form]
        kind = "did_not_run" if own is None else status
        step = 1.0 if own is None else own[min(order.window, len(own)) - 1]
        seen.append(session(order.form, order.window, step, status=kind))
    return places, seen
