"""Sessions for tests of the adaptive design."""

from __future__ import annotations

from anchormatrix.decide.cells import SessionResult


def session(form, window, step_s, *, spread_pct=0.4, repeats=3, status="measured"):
    half = spread_pct / 200
    values = tuple(step_s * factor for factor in (1.0, 1 - half, 1 + half))[:repeats]
    measured = {"few": values, "anchor": values} if status == "measured" else {}
    return SessionResult("c4-x", form, window, status, "", True, measured, {})
