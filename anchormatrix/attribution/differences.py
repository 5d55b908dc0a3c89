"""The difference between two captured steps: which part of the one makes it longer than the other."""

from __future__ import annotations

from anchormatrix.records.attribution import StageDelta, StepRow

IDENTITY_TOLERANCE = 0.001
_PARTS = ("computing_ms", "exposed_ms", "host_ms", "free_ms")
_SLACK_MS = 0.001


def delta(a: StepRow, b: StepRow) -> StageDelta:
    """Return Δ of two steps, the slowest rank of either: ΔStage ≈ ΔComputing + Δexposed + Δhost + ΔFree + ΔBubble.

    Bubble counts only where it lies beside the other parts (some profilers count a receive's wait within exposed
    communication, where it must not count twice).
    """
    change = {key: getattr(b, key) - getattr(a, key) for key in (*_PARTS, "overlapped_ms", "stage_ms")}
    bubble = _separate_bubble_ms(b) - _separate_bubble_ms(a)
    residual = change["stage_ms"] - sum(change[part] for part in _PARTS) - bubble
    largest = max(abs(change[key]) for key in ("stage_ms", *_PARTS))
    return StageDelta(
        ranks=(a.rank, b.rank),
        **{key: round(value, 6) for key, value in change.items()},
        bubble_ms=round(bubble, 6),
        residual_ms=round(residual, 6),
        closes=abs(residual) <= max(_SLACK_MS, 2 * IDENTITY_TOLERANCE * largest),
    )


def _separate_bubble_ms(row: StepRow) -> float:
    """The bubble where the profiler counts it beside Free and exposed, not within them: whichever closes the step."""
    residual = row.stage_ms - sum(getattr(row, part) for part in _PARTS)
    return row.bubble_ms if abs(residual - row.bubble_ms) < abs(residual) else 0.0
