"""Which form is fastest, and how sure that is: selection of the best with an indifference zone, on server starts.

The unit of replication is a server start. Requests of one start share its memory layout, its cards' temperature and
its communicators, so repeating them tells nothing of what the next start will do. The model, on logarithms:

    log(step of form i in window w) = form_i + start_iw,    start_iw ~ N(0, σ²)

A start's step is the median of its repeats; σ² holds what changes between starts and what the repeats left over.

- σ² is pooled over forms: with two to eight starts a form's own variance cannot be estimated. Each form's own variance
  is drawn towards the pooled one by degrees of freedom, and what earlier starts on the host showed enters in the same
  way (moderated variance: Smyth 2004, doi:10.2202/1544-6115.1027). It is never below what the spread of the repeats
  within starts implies.
- Two forms are compared over the windows that both were measured in, so a window that was slow for all moves neither.
- After each window every form that is slower than the leader beyond doubt is eliminated (Kim and Nelson 2001,
  doi:10.1145/502109.502111: fully sequential elimination with an indifference zone). The bounds are Student's t, shared
  among the comparisons by Bonferroni. Measuring ends when no form left can be faster by more than the zone.
- Measuring also ends when the forms that are open would hardly be decided by all the starts that are left.

Two starts of each of two forms give two degrees of freedom: a bound of 5.6 standard deviations at a level of
1.5 %. Eight of each give fourteen and 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from msgspec.structs import replace

from anchormatrix.records.conclusions.selection import Rival, Selection, Standing, StartNoise

Starts = Mapping[str, Mapping[int, Sequence[float]]]
"""Repeats in seconds by form and window; a form in a window is one server start."""

_MEDIAN_VARIANCE = 1.35  # variance of the median of few normal draws × their number: 1.35 for three


@dataclass(frozen=True)
class Rule:
    """How a leader is found. ``level`` is the chance of error of one comparison, ``zone_pct`` the indifference zone.

    Nothing is decided before ``first_window`` windows unless the noise is ``known``; before that, forms further behind
    than ``far_pct`` are left out (None: never): three standard deviations of a difference of starts that vary by 2.5 %.
    ``most_windows`` limits the starts of a form; below ``least_chance`` more of them are not worth their time.
    """

    zone_pct: float = 1.0
    level: float = 0.015
    first_window: int = 2
    most_windows: int = 8
    far_pct: float | None = 10.6
    least_chance: float = 0.1
    known: StartNoise | None = None


def select(starts: Starts, rule: Rule) -> Selection:
    """The leader among forms with starts, and every other form against it. Windows are looked at one after the other.

    A form without a single start takes no part in the comparisons, and could be the fastest all the same.
    """
    race = _Race({form: dict(found) for form, found in starts.items() if found}, rule)
    race.unheard = tuple(form for form, found in starts.items() if not found)
    for window in sorted({window for found in race.starts.values() for window in found}):
        race.look(window)
    return race.selection()


def half_width_pct(starts: Starts, a: str, b: str, rule: Rule, *, windows: int | None = None) -> float | None:
    """How far apart two forms must be before their starts tell them apart, in percent; None when nothing tells.

    ``windows`` is how many starts of each the difference rests on (default: those they share).
    """
    look = _Look({form: dict(found) for form, found in starts.items() if found}, rule, 1)
    gap = look.gap(a, b) if a in look.steps and b in look.steps else None
    if gap is None or gap.error is None:
        return None
    return 100 * math.expm1(gap.error * math.sqrt(gap.windows / (windows or gap.windows)))


def resolution_pct(sd_pct: float, rule: Rule, *, forms: int, starts: int) -> float:
    """The smallest difference that so many starts of each form tell, in percent, where starts differ by ``sd_pct``."""
    dof = forms * (starts - 1) + (rule.known.dof if rule.known else 0.0)
    error = t_quantile(dof, rule.level / max(1, forms - 1)) * sd_pct / 100 * math.sqrt(2 / starts)
    return 100 * math.expm1(error)


@dataclass(frozen=True)
class MeanStep:
    """Mean log(step) of a form over its ``starts``, the variance of that mean, and its degrees of freedom."""

    value: float
    variance: float
    dof: float
    starts: int


def mean_step(starts: Starts, form: str, rule: Rule) -> MeanStep:
    """The mean step of a form that has starts, with the noise that the starts of all forms beside it show."""
    look = _Look({name: dict(found) for name, found in starts.items() if found}, rule, 1)
    own = look.steps[form]
    return MeanStep(fmean(own.values()), look.own.get(form, look.variance) / len(own), look.dof, len(own))


@dataclass(frozen=True)
class _Gap:
    """``b`` against ``a`` in logarithms over ``windows`` shared windows, and the error that bounds it."""

    value: float
    error: float | None
    windows: int
    deviation: float  # of the difference of one start each


class _Look:
    """What the starts up to a window say. ``comparisons`` share the chance of error."""

    def __init__(self, starts: Mapping[str, Mapping[int, Sequence[float]]], rule: Rule, comparisons: int) -> None:
        self.rule, self.comparisons = rule, max(1, comparisons)
        self.steps = {form: {w: math.log(median(v)) for w, v in found.items()} for form, found in starts.items()}
        self.variance, self.dof, self.own = self._noise(starts)

    def _noise(self, starts: Mapping[str, Mapping[int, Sequence[float]]]) -> tuple[float, float, dict[str, float]]:
        own = {form: variance(found.values()) for form, found in self.steps.items() if len(found) > 1}
        free = {form: len(self.steps[form]) - 1 for form in own}
        known = self.rule.known
        dof = sum(free.values()) + (known.dof if known else 0.0)
        if not dof:
            return 0.0, 0.0, {}
        squares = sum(own[form] * free[form] for form in own)
        squares += known.dof * (known.sd_pct / 100) ** 2 if known else 0.0
        least = _left_by_repeats(starts)
        pooled = max(squares / dof, least)
        moderated = {form: (dof * pooled + free[form] * own[form]) / (dof + free[form]) for form in own}
        moderated = {form: max(value, least) for form, value in moderated.items()}
        return pooled, dof, moderated

    def gap(self, a: str, b: str) -> _Gap | None:
        """``b`` against ``a``; None when no window holds both."""
        shared = self.steps[a].keys() & self.steps[b].keys()
        if not shared:
            return None
        value = fmean(self.steps[b][w] - self.steps[a][w] for w in shared)
        deviation = math.sqrt(self.own.get(a, self.variance) + self.own.get(b, self.variance))
        error = self.quantile(self.dof) * deviation / math.sqrt(len(shared)) if self.dof else None
        return _Gap(value, error, len(shared), deviation)

    def quantile(self, dof: float) -> float:
        """Student's t at the level of one comparison."""
        return t_quantile(dof, self.rule.level / self.comparisons)

    def chance(self, gap: _Gap, zone: float, left: int) -> float:
        """The chance that a comparison still open is decided by ``left`` more starts of both forms."""
        from scipy.special import ndtr  # noqa: PLC0415

        if left <= 0 or not gap.deviation:
            return 0.0
        last = gap.windows + left
        error = self.quantile(self.dof + 2 * left) * gap.deviation / math.sqrt(last)
        moves = gap.deviation * math.sqrt(1 / gap.windows - 1 / last)
        return float(ndtr((gap.value + zone - error) / moves))


class _Race:
    """The forms in the race while one window after the other is looked at."""

    def __init__(self, starts: dict[str, dict[int, Sequence[float]]], rule: Rule) -> None:
        self.starts, self.rule = starts, rule
        self.zone = math.log1p(rule.zone_pct / 100)
        self.alive = list(starts)
        self.out: dict[str, Rival] = {}
        self.last: _Look | None = None
        self.leader: str | None = None
        self.near: dict[str, Rival] = {}
        self.noise: StartNoise | None = None
        self.hopeless = ""
        self.decided = False
        self.unheard: tuple[str, ...] = ()

    def look(self, window: int) -> None:
        seen = {form: {w: v for w, v in found.items() if w <= window} for form, found in self.starts.items()}
        seen = {form: found for form, found in seen.items() if found}
        alive = [form for form in self.alive if form in seen]
        look = _Look(seen, self.rule, len(alive) - 1)
        self.last, self.leader = look, _leader(look, alive)
        if look.dof and (window >= self.rule.first_window or self.rule.known):
            self._judge(look, alive, window)
        else:
            self._leave_far_ones(look, alive)

    def _judge(self, look: _Look, alive: Sequence[str], window: int) -> None:
        known = self.rule.known
        self.noise = StartNoise(
            sd_pct=100 * math.sqrt(look.variance), dof=look.dof, from_history=known.dof if known else 0.0
        )
        self.near, chances = {}, []
        for form in alive:
            if form == self.leader:
                continue
            gap = look.gap(self.leader or form, form)
            rival = self._rival(form, gap)
            if rival.standing is Standing.BEHIND:
                self.out[form] = rival
                self.alive.remove(form)
            else:
                self.near[form] = rival
            if rival.standing is Standing.OPEN and gap is not None:
                chances.append(look.chance(gap, self.zone, self.rule.most_windows - window))
        self.decided = not any(rival.standing is Standing.OPEN for rival in self.near.values())
        if chances and min(chances) < self.rule.least_chance and not self.hopeless and not self.decided:
            self.hopeless = (
                f"starts of one form differ by {self.noise.sd_pct:.1f} % (standard deviation): "
                f"{self.rule.most_windows} starts of each would hardly tell"
            )

    def _leave_far_ones(self, look: _Look, alive: Sequence[str]) -> None:
        others = [form for form in alive if form != self.leader]
        self.near = {form: self._rival(form, look.gap(self.leader or form, form)) for form in others}
        far = self.rule.far_pct
        behind = sorted(self.near.values(), key=_behind)
        for rival in behind[1:] if far is not None else ():  # the nearest stays, so that two forms are compared
            if far is not None and rival.behind_pct > far:
                self.out[rival.form] = replace(self.near.pop(rival.form), standing=Standing.BEHIND)
                self.alive.remove(rival.form)

    def _rival(self, form: str, gap: _Gap | None) -> Rival:
        if gap is None:
            return Rival(form=form, standing=Standing.OPEN, behind_pct=0.0, low_pct=None, high_pct=None, starts=0)
        if gap.error is None:
            low, high, standing = None, None, Standing.OPEN
        else:
            low, high = gap.value - gap.error, gap.value + gap.error
            standing = Standing.BEHIND if low > 0 else Standing.SETTLED if low > -self.zone else Standing.OPEN
            if gap.windows < 2 and not self.rule.known:  # a single window never decides
                standing = Standing.OPEN
        return Rival(
            form=form,
            standing=standing,
            behind_pct=100 * math.expm1(gap.value),
            low_pct=None if low is None else 100 * math.expm1(low),
            high_pct=None if high is None else 100 * math.expm1(high),
            starts=gap.windows,
        )

    def _still_behind(self, rival: Rival) -> Rival:
        """A form that is out, against the form that leads now and with all that is known of the noise by now."""
        look, leader = self.last, self.leader
        gap = look.gap(leader, rival.form) if look and leader in look.steps and rival.form in look.steps else None
        return replace(self._rival(rival.form, gap), standing=Standing.BEHIND) if gap else rival

    def selection(self) -> Selection:
        rivals = sorted([*self.near.values(), *map(self._still_behind, self.out.values())], key=_behind)
        return Selection(
            leader=self.leader,
            decided=self.decided and bool(rivals) and not self.unheard,
            rivals=tuple(rivals),
            unheard=self.unheard,
            noise=self.noise,
            zone_pct=self.rule.zone_pct,
            level=self.rule.level,
            starts={form: len(found) for form, found in self.starts.items()},
            hopeless="" if self.decided else self.hopeless,
        )


def _behind(rival: Rival) -> float:
    return rival.behind_pct


def t_quantile(dof: float, level: float) -> float:
    """The bound of Student's t that chance exceeds with probability ``level``."""
    from scipy.special import stdtrit  # noqa: PLC0415  half a second that only a comparison costs

    return float(stdtrit(dof, 1 - level))


def _leader(look: _Look, alive: Sequence[str]) -> str | None:
    """The form that is ahead of the others on average, each pair compared over its own shared windows."""

    def lag(form: str) -> float:
        gaps = [look.gap(other, form) for other in alive if other != form]
        return fmean([gap.value for gap in gaps if gap] or [0.0])

    return min(alive, key=lag, default=None)


def _left_by_repeats(starts: Mapping[str, Mapping[int, Sequence[float]]]) -> float:
    """The variance that the repeats within starts leave in a start's median, in logarithms."""
    found = [list(map(math.log, values)) for own in starts.values() for values in own.values() if len(values) > 1]
    free = sum(len(values) - 1 for values in found)
    if not free:
        return 0.0
    within = sum(variance(values) * (len(values) - 1) for values in found) / free
    return _MEDIAN_VARIANCE * within * len(found) / sum(map(len, found))
