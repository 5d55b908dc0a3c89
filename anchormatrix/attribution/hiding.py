"""The ceiling of masking: which share of communication compute can hide at best, in how many chunks."""

from __future__ import annotations

# The source's drain of the last chunk is a quarter to a third of a chunk's communication.
DRAIN_RATIO = 0.25


def bound(c_total: float, f_total: float, alone: float) -> float:
    """The largest share of C that F can hide, within 0 … 1; no schedule exceeds it.

    ``alone`` is the part of C that runs while no attention can: the first chunk's exchange, which the first attention
    waits for, and the last chunk's way back, which waits for the last. The proof is in ``docs/attribution.md``.
    """
    return max(0.0, min(f_total, c_total - alone)) / c_total if c_total > 0 else 0.0


def equal_bound(c_total: float, f_total: float, chunks: int) -> float:
    """The bound with n equal chunks: min(1 − 1/n, F ÷ C)."""
    return bound(c_total, f_total, c_total / chunks)


def estimate(c_total: float, f_total: float, chunks: int, drain_ratio: float = DRAIN_RATIO) -> float:
    """The source document's estimate of what a schedule reaches; a right one can exceed it, so it is never a bound.

    f ≥ c: 1 − 1/n. f < c: 1 − [c + (n−1)(c−f) + drain] ÷ C: fill, what the steady state cannot hide, and the drain of
    the last chunk (``drain_ratio`` × c). It lets the last chunk's attention hide nothing.
    """
    if c_total <= 0:
        return 0.0
    c, f = c_total / chunks, f_total / chunks
    if f >= c:
        return 1 - 1 / chunks
    return max(0.0, 1 - (c + (chunks - 1) * (c - f) + drain_ratio * c) / c_total)


def usable_chunks(requested: int, local_heads: int | None) -> int:
    """Return the largest divisor of the local heads that is not above the requested chunks."""
    if local_heads is None:
        return requested
    return max(n for n in range(1, local_heads + 1) if local_heads % n == 0 and n <= requested)
