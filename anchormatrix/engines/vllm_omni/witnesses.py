"""Witnesses: whether a diffuse time can be true beside the progress bar, the enclosing stage and the log's own clock.

A stage is timed by the host. When the device is not waited for at its end, it says how long launching took, and the
time appears elsewhere: in the bar, in ``forward``, between the stamps of the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from anchormatrix.engines.logs.bars import Bar, agrees, contradiction
from anchormatrix.engines.vllm_omni.segments import RawLog, Segment
from anchormatrix.engines.vllm_omni.stages import is_diffuse, is_forward

_SLACK_S = 0.5
_BACK_S = 2.0  # lines of several processes may stand this much out of order
_YEAR_S = 366 * 86400.0


def enclosing(times: Mapping[str, Sequence[float]], diffuse_s: float) -> str:
    """Why one rank's diffuse time is impossible beside the stage in it or the one round it; empty when it is not."""
    inner = max((sum(seconds) for name, seconds in times.items() if is_diffuse(name)), default=0.0)
    if inner > diffuse_s * 1.05 + _SLACK_S:
        return f"the stage says {diffuse_s:.3g} s and one inside it {inner:.4g} s"
    whole = _forward(times)
    if whole and diffuse_s > whole * 1.02 + _SLACK_S / 10:
        return f"the stage says {diffuse_s:.4g} s and forward, which encloses it, {whole:.4g} s"
    return ""


def unexplained(times: Mapping[str, Sequence[float]], diffuse_s: float, offload: bool) -> str:
    """Whether ``forward`` is mostly explained by no stage; empty when it is explained. Beyond its stages it may hold
    weights that an ``offload`` brings in, and encoders whose time is not told, so only multiples count."""
    whole = _forward(times)
    others = {n: sum(s) for n, s in times.items() if not (is_diffuse(n) or is_forward(n))}
    told = sum(s for name, s in others.items() if not any(name.startswith(f"{outer}.") for outer in others))
    every = not offload and all(any(word in name for name in others) for word in ("decode", "encode"))
    limit_s = min(5 * diffuse_s + _SLACK_S, 2 * diffuse_s + 2) if every else 10 * diffuse_s + _SLACK_S
    if whole - diffuse_s - told <= limit_s:
        return ""
    return f"forward says {whole:.4g} s, of which the stages explain {diffuse_s + told:.3g} s"


class Witnesses:
    """What of a log bears a diffuse time out or not. ``clock``: its stamps go on from request to request and never
    back; ``offload``: a worker said something of it."""

    def __init__(self, raw: RawLog) -> None:
        times = _seconds(stamp for segment in raw.segments for stamp in _stamps(segment))
        begun = _seconds(segment.stamp for segment in raw.segments if segment.stamp)
        goes_on = len(begun) > 1 and begun[-1] > begun[0]
        self.clock = goes_on and all(later >= earlier - _BACK_S for earlier, later in pairwise(times))
        self.offload = any("ffload" in line for _, line in raw.features)

    def doubt(
        self, segment: Segment, times: Mapping[str, Sequence[float]], diffuse_s: float, bars: Sequence[Bar]
    ) -> str:
        """Why a rank's diffuse time is not usable; empty when nothing speaks against it. A bar that runs long enough to
        tell and bears it out outweighs the clock and what is missing of forward."""
        against = [contradiction(bars, diffuse_s), enclosing(times, diffuse_s)]
        if not agrees(bars, diffuse_s):
            against += [unexplained(times, diffuse_s, self.offload), self._by_clock(segment, diffuse_s)]
        return "; ".join(filter(None, against))

    def _by_clock(self, segment: Segment, diffuse_s: float) -> str:
        """Why a time does not fit between the request's first line and its last diffuse line; stamps are cut to whole
        seconds."""
        last = [line.stamp for line in segment.stages if is_diffuse(line.name) and line.stamp]
        times = _seconds((segment.stamp, *last)) if self.clock and segment.stamp else []
        if len(times) < 2 or diffuse_s <= (max(times) - times[0]) * 1.02 + 1.0 + _SLACK_S:
            return ""
        return f"the stage says {diffuse_s:.4g} s where {max(times) - times[0]:.0f} s lie between the request's lines"


def _forward(times: Mapping[str, Sequence[float]]) -> float:
    return max((sum(seconds) for name, seconds in times.items() if is_forward(name)), default=0.0)


def _stamps(segment: Segment) -> Iterable[str]:
    return (stamp for stamp in (segment.stamp, *(line.stamp for line in segment.stages)) if stamp)


def _seconds(stamps: Iterable[str]) -> list[float]:
    """Stamps as seconds. They hold no year: a fall by months is the turn of one."""
    times: list[float] = []
    years = 0.0
    for stamp in stamps:
        time = _second(stamp)
        if time is None:
            continue
        if times and time + years < times[-1] - _YEAR_S / 2:
            years += _YEAR_S
        times.append(time + years)
    return times


@lru_cache(maxsize=1 << 14)
def _second(stamp: str) -> float | None:
    try:
        return (datetime.strptime(f"2000-{stamp}", "%Y-%m-%d %H:%M:%S") - datetime(2000, 1, 1)).total_seconds()
    except ValueError:
        return None
