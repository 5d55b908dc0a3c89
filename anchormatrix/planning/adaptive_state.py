"""The state of an adaptive measurement, form by form: who can still win, how noisy the cards are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from anchormatrix.records.cells import spread_pct
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.store.sessions import TimedSession

_ENOUGH_CELLS = 4  # two forms at two tiers
_RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}  # expected range of n normal draws in standard deviations
_FAILED = {SessionStatus.DID_NOT_RUN, SessionStatus.VOID, SessionStatus.UNMEASURABLE}


@dataclass(frozen=True)
class AdaptiveLimits:
    """``repeats`` of a session where the decision hangs on them, and ``base_repeats`` of any other.

    ``extra_windows`` may replace noisy ones. A form further above the best than ``hopeless_dispersions`` times the
    mean dispersion (two thirds of that once it has all its repeats), within ``hopeless_min_pct`` and
    ``hopeless_max_pct``, cannot win any more. Above ``give_up_pct`` of one cell's dispersion, or ``give_up_mean_pct``
    of the mean, nothing more is tried.
    """

    repeats: int = 3
    base_repeats: int = 2
    windows: int = 2
    extra_windows: int = 1
    dispersion_pct: float = 3.0
    noise_floor_pct: float = 1.0
    hopeless_dispersions: float = 3.0
    hopeless_min_pct: float = 1.5
    hopeless_max_pct: float = 6.0
    give_up_pct: float = 4.5
    give_up_mean_pct: float = 2.25

    @property
    def all_windows(self) -> int:
        """Windows that may be needed at most; jobs of those that are not needed only write why."""
        return self.windows + self.extra_windows


class AdaptiveState:
    """What is known before a session."""

    def __init__(self, forms: tuple[str, ...], seen: list[TimedSession], limits: AdaptiveLimits) -> None:
        self.forms, self.limits = forms, limits
        self.tried = {timed.place: timed for timed in seen}
        self.measured = {
            place: timed for place, timed in self.tried.items() if timed.session.status is SessionStatus.MEASURED
        }

    def anchor(self, form: str, window: int) -> float | None:
        """Median anchor step of a form in a window."""
        session = self.measured.get((form, window))
        values = session.values_s.get(ANCHOR, ()) if session else ()
        return median(values) if values else None

    def best_step(self, window: int) -> float | None:
        """The fastest anchor step of a window."""
        return min((step for form in self.forms if (step := self.anchor(form, window)) is not None), default=None)

    def failed(self, form: str) -> bool:
        """Whether the form was tried and no session of it gave numbers."""
        own = {timed.session.status for (name, _), timed in self.tried.items() if name == form}
        own.discard(SessionStatus.SKIPPED)
        return bool(own) and own <= _FAILED

    def able(self, before: int) -> set[str]:
        """Forms that can still win, judged by the windows before ``before``; the best two splits are always among them.

        A form is out when in some window it lies beyond reach of that window's best.
        """
        out: set[str] = set()
        worst: dict[str, float] = {}
        for window in range(1, before):
            best = self.best_step(window)
            for form in self.forms:
                step = self.anchor(form, window)
                if best is None or step is None:
                    continue
                behind = 100 * (step / best - 1)
                worst[form] = max(worst.get(form, 0.0), behind)
                if behind > self.reach_pct(window, whole=self._repeated(form, window)):
                    out.add(form)
        left = {form for form in self.forms if not self.failed(form)} - out
        ranked = sorted((f for f in worst if self._whole(f)), key=lambda form: worst[form])
        return left | set(_two_splits(ranked))

    def _whole(self, form: str) -> bool:
        """Whether no window is known in which the form was stopped early."""
        own = [session for (name, _), session in self.measured.items() if name == form]
        return all(len(session.values_s.get(ANCHOR, ())) >= self.limits.base_repeats for session in own)

    def enough_rivals(self, form: str, window: int) -> bool:
        """Whether two forms of different splits are measured whole in this window, so that this one may be stopped."""
        whole = [
            name
            for name in self.forms
            if name != form
            and (session := self.measured.get((name, window)))
            and len(session.values_s.get(ANCHOR, ())) >= self.limits.base_repeats
        ]
        return len(_two_splits(whole)) > 1

    def noise(self, window: int) -> str:
        """The contender's cell of a window whose dispersion is above the limit, in words; empty when there is none."""
        found = self._noisiest(window)
        if found is None or found[0] <= self.limits.dispersion_pct:
            return ""
        return f"{found[1]} disperses by {found[0]:.1f} % in window {window}"

    def _noisiest(self, window: int) -> tuple[float, str] | None:
        able = self.able(window + 1)
        found = [
            (spread_pct(values), f"{form}/{tier}")
            for (form, number), session in self.measured.items()
            if number == window and form in able
            for tier, values in session.values_s.items()
            if len(values) > 1
        ]
        return max(found, default=None)

    def complete_windows(self, forms: Sequence[str]) -> list[int]:
        """Windows in which every one of the forms that run was measured."""
        wanted = [form for form in forms if not self.failed(form)]
        windows = sorted({window for _, window in self.measured})
        return [window for window in windows if all((form, window) in self.measured for form in wanted)]

    def dispersion(self, window: int) -> float:
        """Mean dispersion up to a window, as three repeats would show it; the limit when there are too few cells."""
        spreads = self._spreads(window)
        return fmean(spreads) if len(spreads) >= _ENOUGH_CELLS else self.limits.dispersion_pct

    def _spreads(self, window: int) -> list[float]:
        return [
            spread_pct(values) * _RANGES[3] / _RANGES[min(len(values), max(_RANGES))]
            for (_, number), session in self.measured.items()
            if number <= window
            for values in session.values_s.values()
            if len(values) > 1
        ]

    def _repeated(self, form: str, window: int) -> bool:
        session = self.measured.get((form, window))
        return session is not None and len(session.values_s.get(ANCHOR, ())) >= self.limits.base_repeats

    def reach_pct(self, window: int, *, whole: bool = False) -> float:
        """How far behind the best noise could have put the best form: by one request, or by a ``whole`` median."""
        limits = self.limits
        reach = limits.hopeless_dispersions * self.dispersion(window) * (2 / 3 if whole else 1)
        return min(limits.hopeless_max_pct, max(limits.hopeless_min_pct, reach))

    def repeats(self, form: str, window: int) -> int:
        """Pairs of a session: the base number unless the decision hangs on more for this form.

        It does for a form whose distance to the best of the first full window lies within the dispersion of the noise
        floor, and then for that best too.
        """
        first = next((number for number in range(1, window) if len(self._measured_in(number)) > 1), None)
        best = None if first is None else self.best_step(first)
        if first is None or best is None:
            return self.limits.base_repeats
        noise = self.dispersion(first)
        floor = max(self.limits.noise_floor_pct, noise)
        behind = {
            name: 100 * (step / best - 1) for name in self.forms if (step := self.anchor(name, first)) is not None
        }
        close = [name for name, pct in behind.items() if pct > 0 and abs(pct - floor) <= noise]
        hangs = form in close or (behind.get(form) == 0 and bool(close))
        return self.limits.repeats if hangs else self.limits.base_repeats

    def _measured_in(self, window: int) -> list[str]:
        return [form for form in self.forms if (form, window) in self.measured]

    def why_skip(self, form: str, window: int) -> str:
        """Why a session need not be measured; empty when it must be."""
        limits = self.limits
        if self.failed(form):
            return "it did not run through in an earlier window"
        gave_up = self._gave_up(window)
        if gave_up:
            return gave_up
        spoiled = self.noise(window)
        if spoiled and window < limits.all_windows:
            return f"{spoiled}: this window does not count any more"
        if window == 1:
            return ""
        able = self.able(window)
        if form not in able:
            return f"it cannot win any more: {self.behind(form, window)}"
        if len(able) < 2:
            return "no other form is left to compare it with"
        if window > limits.windows:
            return self._why_no_extra(window)
        return ""

    def _gave_up(self, window: int) -> str:
        for number in range(1, window + 1):
            found = self._noisiest(number)
            if found and found[0] > self.limits.give_up_pct:
                return (
                    f"{found[1]} disperses by {found[0]:.1f} % in window {number}: far above the limit of "
                    f"{self.limits.dispersion_pct:g} %, nothing may be ranked until the noise is fixed"
                )
        spreads = self._spreads(window)
        if len(spreads) >= _ENOUGH_CELLS and fmean(spreads) > self.limits.give_up_mean_pct:
            return (
                f"cells disperse by {fmean(spreads):.1f} % on average: with a limit of "
                f"{self.limits.dispersion_pct:g} % the pair's cells will hardly all pass, nothing may be ranked until "
                "the noise is fixed"
            )
        return ""

    def _why_no_extra(self, window: int) -> str:
        able = tuple(self.able(window))
        clean = [number for number in self.complete_windows(able) if number < window and not self.noise(number)]
        if len(clean) >= self.limits.windows:
            return "enough windows are clean"
        if len(clean) + _windows_left(self.limits, window) < self.limits.windows:
            return "too few windows are left to replace the noisy ones"
        return ""

    def behind(self, form: str, window: int) -> str:
        """Why a form cannot win any more, by the windows before this one."""
        for number in range(1, window):
            best, step = self.best_step(number), self.anchor(form, number)
            reach = self.reach_pct(number, whole=self._repeated(form, number))
            if best and step and 100 * (step / best - 1) > reach:
                count = len(self.measured[form, number].values_s[ANCHOR])
                return (
                    f"{100 * (step / best - 1):.1f} % behind in window {number} after {times_text(count)}, "
                    f"noise here can undo {reach:.1f} %"
                )
        return "two other forms are closer"


def _windows_left(limits: AdaptiveLimits, window: int) -> int:
    """Windows that can still be measured, this one included."""
    return limits.all_windows - window + 1


def times_text(count: int) -> str:
    return f"{count} repeat{'s' if count > 1 else ''}"


def _two_splits(ranked: Iterable[str]) -> list[str]:
    """The first form and the next one of another split."""
    names = list(ranked)
    if not names:
        return []
    first = parse_form(names[0]).split
    other = next((name for name in names[1:] if parse_form(name).split != first), None)
    return [names[0]] if other is None else [names[0], other]
