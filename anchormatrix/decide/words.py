"""Quantities in words, with the same digits wherever they stand beside one another."""

from __future__ import annotations

from collections.abc import Sequence


def seconds(value: float) -> str:
    """A step time: milliseconds are told, and of very short steps four digits."""
    return f"{value:.3f} s" if abs(value) >= 1 or not value else f"{value:.4g} s"


def milliseconds(value: float) -> str:
    """A part of a step: tenths are told, and of very short parts three digits."""
    return f"{value:.1f} ms" if abs(value) >= 1 or not value else f"{value:.3g} ms"


def listed(names: Sequence[str]) -> str:
    """Names as they are said one after the other: ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
