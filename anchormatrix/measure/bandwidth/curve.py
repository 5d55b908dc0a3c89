"""The size sweep of a card group: how long one collective takes for a payload, a link class and a concurrency."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from anchormatrix.records.bandwidth import SweepPoint


@dataclass(frozen=True)
class Estimate:
    """A time read from the sweep, or None, and in words what it rests on or what is missing."""

    time_us: float | None
    basis: str


def wire_bytes(collective: str, ranks: int, payload: float) -> float:
    """Bytes one rank puts on the wire in one call: (w−1)/w, w−1, 2(w−1)/w or 1 times its payload."""
    factor = {"all_to_all": (ranks - 1) / ranks, "all_gather": ranks - 1, "all_reduce": 2 * (ranks - 1) / ranks}
    return payload * factor.get(collective, 1.0)


@dataclass(frozen=True)
class Curves:
    """The points of a size sweep as curves of time over size."""

    points: tuple[SweepPoint, ...]

    @cached_property
    def _curves(self) -> dict[tuple[str, str, int, int], list[tuple[float, float]]]:
        raw: dict[tuple[str, str, int, int], dict[int, list[float]]] = {}
        for point in self.points:
            key = (point.collective, point.link_class, point.ranks, point.concurrency)
            raw.setdefault(key, {}).setdefault(point.bytes, []).append(point.time_us)
        return {
            key: [(float(size), median(times)) for size, times in sorted(sizes.items())] for key, sizes in raw.items()
        }

    def estimate(self, collective: str, link_class: str, ranks: int, payload: float, concurrency: int) -> Estimate:
        """Time of one call: t0 + bytes ÷ B(bytes), piecewise linear between measured sizes.

        The link class must be the measured one: a bandwidth of other links is never carried over. A missing concurrency
        is bracketed by the nearest measured one and a missing rank count by wire bytes; both are said in ``basis``.
        """
        keys = [key for key in self._curves if key[0] == collective and key[1] == link_class]
        if not keys:
            return Estimate(None, f"{collective} was not swept over {link_class} links")
        key = min(keys, key=lambda k: (abs(math.log(k[2] / ranks)), abs(math.log(k[3] / concurrency)), k[3]))
        scaled = payload
        notes = []
        if key[2] != ranks:
            scaled = wire_bytes(collective, ranks, payload) / wire_bytes(collective, key[2], 1.0)
            notes.append(f"scaled by wire bytes from {key[2]} ranks")
        if key[3] != concurrency:
            notes.append(f"measured with {key[3]} communicators at once, the form runs {concurrency}")
        curve = self._curves[key]
        if scaled > curve[-1][0]:
            notes.append(f"beyond the largest size measured, {curve[-1][0] / 1e6:.0f} MB")
        note = f" ({'; '.join(notes)})" if notes else ""
        text = f"{collective} over {link_class}, {key[2]} ranks, {key[3]} at once{note}"
        return Estimate(interpolate(curve, scaled), text)


def interpolate(curve: Sequence[tuple[float, float]], size: float) -> float:
    """Time at ``size`` on a curve of (bytes, µs), ascending in bytes.

    Linear between neighbours, which is exact for t0 + bytes ÷ B. Outside, the end segment goes on, but below the
    smallest size never under the fixed cost it implies (at least zero), and one point alone scales by bytes.
    """
    if len(curve) == 1:
        return curve[0][1] * size / curve[0][0]
    sizes = [point[0] for point in curve]
    right = min(max(bisect_left(sizes, size), 1), len(curve) - 1)
    (x0, y0), (x1, y1) = curve[right - 1], curve[right]
    slope = max(0.0, (y1 - y0) / (x1 - x0))
    if size < x0:
        return max(y0 - slope * (x0 - size), 0.0) if slope * x0 <= y0 else y0 * size / x0
    return y0 + slope * (size - x0)
