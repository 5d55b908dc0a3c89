"""Figures as result files hold them: times in milliseconds, shares with six decimals."""

from __future__ import annotations

import math


def ms(ns: float) -> float:
    """Nanoseconds as milliseconds; six decimals are exact for integers."""
    return round(float(ns) / 1e6, 6)


def optional(value: float | None) -> float | None:
    """A share or ratio, or None where it is not known."""
    return None if value is None or math.isnan(value) else round(float(value), 6)
