"""The size sweep of a card group: how long one collective takes for a payload, a link class and a concurrency."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any

from anchormatrix.errors import InputError

KINDS = ("all_to_all", "all_gather", "all_reduce", "send_recv")


@dataclass(frozen=True)
class SweepPoint:
    """One measured point. ``bytes`` is what one rank hands to the call.

    That is the local tensor of all-to-all and all-reduce, the own shard of all-gather, the block of send/receive.
    ``concurrency`` counts communicators over the same cards active at once; ``gb_s`` is wire bytes of one rank ÷ time.
    """

    collective: str
    link_class: str
    ranks: int
    bytes: int
    concurrency: int
    time_us: float
    gb_s: float

    def __post_init__(self) -> None:
        if self.collective not in KINDS:
            raise InputError(f"{self.collective!r} is not a collective", where="bandwidth", expected=", ".join(KINDS))
        if not (self.ranks >= 2 and self.bytes > 0 and self.concurrency >= 1):
            raise InputError(f"{self} is not a point of a sweep", where="bandwidth")
        if not (math.isfinite(self.time_us) and self.time_us > 0 and math.isfinite(self.gb_s)):
            raise InputError(f"time {self.time_us} µs is not a positive number", where="bandwidth")


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
class Sweep:
    """All points of one contract's group."""

    points: tuple[SweepPoint, ...]
    source: str = ""

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

    def as_dict(self, contract: str) -> dict[str, Any]:
        """The file's content, without the schema number."""
        return {"contract": contract, "points": [asdict(point) for point in self.points], "source": self.source}


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


def sweep_from_dict(values: Mapping[str, Any], *, where: str = "bandwidth") -> Sweep:
    """Read the file's content. Raises :class:`InputError` naming the point that is not one."""
    points = values.get("points")
    if not isinstance(points, Iterable) or isinstance(points, (str, bytes, Mapping)):
        raise InputError("no list of points", where=where, expected='{"points": [{"collective", …}]}')
    found = []
    for number, row in enumerate(points):
        try:
            point = SweepPoint(
                str(row["collective"]),
                str(row["link_class"]),
                int(row["ranks"]),
                int(row["bytes"]),
                int(row["concurrency"]),
                float(row["time_us"]),
                float(row["gb_s"]),
            )
            if min(point.ranks, point.bytes, point.concurrency, point.time_us, point.gb_s) <= 0:
                raise ValueError("a size, count or time that is not positive")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"point {number} is unreadable ({error!r})", where=where) from None
        found.append(point)
    return Sweep(tuple(found), str(values.get("source", "")))
