"""The ceiling of masking: which share of communication compute can hide at best, in how many chunks."""

from __future__ import annotations

# The last chunk's drain is a quarter to a third of a chunk's communication; the lower end keeps the bound a ceiling.
DRAIN_RATIO = 0.25


def bound(c_total: float, f_total: float, chunks: int, drain_ratio: float = DRAIN_RATIO) -> float:
    """Return the largest share of C that n chunks can hide behind F, within 0 … 1.

    f ≥ c: 1 − 1/n, only the first chunk is exposed. f < c: 1 − [c + (n−1)(c−f) + drain] ÷ C: fill, what the steady
    state cannot hide, and the drain of the last chunk (``drain_ratio`` × c); nearly independent of n.
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
