"""The changes of a series: regressions and improvements over nights, called only beyond noise.

The nights of one series under one contract are replayed in order. Tonight is compared with the level so far: for the
last k = 1, 2, 3 and 7 nights, the mean of ln(step time) of these k against that of the level's other nights (at most
the last 30, at least 4) with the two-sample t statistic

    t = (mean_k − mean_n) ÷ (s · √(1/k + 1/n)),   s the standard deviation of the n nights, n − 1 degrees of freedom,

so that few nights make a call harder, not likelier. Four tests of 0.1 % each keep false alarms near 0.4 % per series
and night (simulated, whatever the noise). A step 5 % slower at 1 % noise is found within three nights with 97 %
certainty after 10 nights of level, 99 % after 14: one night finds a jump, seven find a small, lasting shift. A
difference below the noise floor (1 % by default) is never called, whatever its significance.

After a call the old level stays the measure: nights nearer to it mean that the series is back, nights nearer to the new
level that the change stands. A change that has stood five nights is the new level. A night of the level that lies far
from all its others (leave-one-out, 0.1 %) is not part of it: one wild night among the first would hide everything.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MIN_NIGHTS = 4
_LEVEL_NIGHTS = 30
_STANDS = 5
_SPANS = (1, 2, 3, 7)
_ALPHA = 0.001
_ALPHA_OUTLIER = 0.001
_PRACTICALLY_EQUAL = 1e-9


class Change(enum.Enum):
    """What a night says of its series."""

    LEARNING = "learning"
    NONE = "no change"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    BACK = "back to the level before"
    NEW_LEVEL = "new level"


@dataclass(frozen=True)
class Judgement:
    """One night of one series.

    ``shift_pct`` is the change of step time against the level before, in percent (positive is slower); ``since`` is
    the index of the first night of a change; ``new`` tells the night that called it from those on which it stands.
    ``level_s`` and ``noise_pct`` describe the level compared with (``None`` while it is learned).
    """

    change: Change
    new: bool = False
    shift_pct: float = 0.0
    since: int | None = None
    level_s: float | None = None
    noise_pct: float | None = None
    level: tuple[int, ...] = ()


@dataclass
class _Replay:
    """The state between nights: indexes of the nights of the level, and of a change that was called."""

    logs: list[float]
    floor_pct: float
    level: list[int] = field(default_factory=list)
    shifted: list[int] = field(default_factory=list)

    def night(self, index: int) -> Judgement:
        if self.shifted:
            return self._while_shifted(index)
        self.level.append(index)
        if len(self.level) <= MIN_NIGHTS:
            return Judgement(Change.LEARNING)
        for span in _SPANS:
            base = self._base(span)
            if len(base) < MIN_NIGHTS:
                break
            recent = self.level[-span:]
            if abs(self._shift_pct(recent, base)) >= self.floor_pct and self._beyond_noise(recent, base):
                self.level = self.level[:-span]
                self.shifted = recent
                return self._changed(base, new=True)
        return self._calm(Change.NONE, self._base(1))

    def _while_shifted(self, index: int) -> Judgement:
        base = self._base(0)
        old, new = self._mean(base), self._mean(self.shifted)
        if abs(self.logs[index] - old) < abs(self.logs[index] - new):
            self.shifted = []
            self.level.append(index)
            return self._calm(Change.BACK, base)
        self.shifted.append(index)
        if len(self.shifted) < _STANDS:
            return self._changed(base, new=False)
        shift_pct, since = self._shift_pct(self.shifted, base), self.shifted[0]
        self.level, self.shifted = self.shifted, []
        return Judgement(
            Change.NEW_LEVEL, True, shift_pct, since, math.exp(self._mean(base)), self._noise_pct(base), tuple(base)
        )

    def _changed(self, base: list[int], *, new: bool) -> Judgement:
        shift_pct = self._shift_pct(self.shifted, base)
        change = Change.REGRESSION if shift_pct > 0 else Change.IMPROVEMENT
        level_s, noise_pct = math.exp(self._mean(base)), self._noise_pct(base)
        return Judgement(change, new, shift_pct, self.shifted[0], level_s, noise_pct, tuple(base))

    def _calm(self, change: Change, base: list[int]) -> Judgement:
        level_s, noise_pct = math.exp(self._mean(base)), self._noise_pct(base)
        return Judgement(change, change is Change.BACK, 0.0, None, level_s, noise_pct, tuple(base))

    def _base(self, without: int) -> list[int]:
        """The nights of the level before the last ``without``, wild ones left out."""
        nights = self.level[: len(self.level) - without][-_LEVEL_NIGHTS:]
        if len(nights) <= MIN_NIGHTS + 1:
            return nights
        tame = _tame([self.logs[night] for night in nights])
        kept = [night for night, within in zip(nights, tame, strict=True) if within]
        return kept if len(kept) >= MIN_NIGHTS else nights

    def _beyond_noise(self, recent: Sequence[int], base: Sequence[int]) -> bool:
        spread = max(self._deviation(base), _PRACTICALLY_EQUAL) * math.sqrt(1 / len(recent) + 1 / len(base))
        return abs(self._mean(recent) - self._mean(base)) / spread > critical_t(_ALPHA, len(base) - 1)

    def _shift_pct(self, recent: Sequence[int], base: Sequence[int]) -> float:
        return math.expm1(self._mean(recent) - self._mean(base)) * 100

    def _mean(self, nights: Sequence[int]) -> float:
        return math.fsum(self.logs[night] for night in nights) / len(nights)

    def _deviation(self, nights: Sequence[int]) -> float:
        mean = self._mean(nights)
        return math.sqrt(math.fsum((self.logs[night] - mean) ** 2 for night in nights) / (len(nights) - 1))

    def _noise_pct(self, nights: Sequence[int]) -> float:
        return self._deviation(nights) * 100


def judge_series(step_s: Sequence[float], *, floor_pct: float) -> list[Judgement]:
    """Judge every night of a series: ``step_s`` is its step time in seconds (positive), oldest night first.

    ``floor_pct`` is the smallest change worth a call, in percent.
    """
    replay = _Replay([math.log(value) for value in step_s], floor_pct)
    return [replay.night(index) for index in range(len(step_s))]


def _tame(values: Sequence[float]) -> list[bool]:
    """Whether each value lies within chance of all the others (leave-one-out t, from sums over all)."""
    others = len(values) - 1
    middle = math.fsum(values) / len(values)
    centred = [value - middle for value in values]
    squares = math.fsum(value * value for value in centred)
    limit = critical_t(_ALPHA_OUTLIER, others - 1) * math.sqrt(1 + 1 / others)
    found = []
    for value in centred:
        mean = -value / others
        variance = max((squares - value * value - others * mean * mean) / (others - 1), 0.0)
        found.append(abs(value - mean) <= limit * max(math.sqrt(variance), _PRACTICALLY_EQUAL))
    return found


@functools.cache
def critical_t(alpha: float, degrees: int) -> float:
    """The t that chance exceeds, up or down, with probability ``alpha``."""
    from scipy.special import stdtrit  # noqa: PLC0415  a series too short to judge needs none of it

    return float(stdtrit(degrees, 1 - alpha / 2))
