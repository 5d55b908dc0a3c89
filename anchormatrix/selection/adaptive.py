"""Measuring less: which session to measure next, how long, and which to leave out, with the reason for each.

The policy is a pure function of what was measured so far, so that each measuring job can consult it by itself:

- window 1 measures the forms in their order; a form whose anchor step lies further above the best than noise could
  undo is stopped after its first anchor request. That reach is three times the mean dispersion of the cells measured
  so far (about five standard deviations of one request; two times for a median of three), at least one and a half
  times the noise floor and at most what the rules let pass (dispersion limit + window drift limit);
- later windows, in reverse order every second time, measure only the forms that can still win, the best two at least:
  windows stay paired, and no single window decides;
- a session repeats less than under the full design, except where the first window's margin lies so close to the noise
  floor that the decision hangs on more repeats; a cell's windows together never have fewer than the configured ones,
  and its dispersion is that of all its repeats together;
- a window in which a contender is noisy is not used and replaced by an extra one while that may help; noise far above
  the limit ends the measuring, because nothing may be ranked on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from anchormatrix.forms import parse_form
from anchormatrix.measure.cells import ALL, Cell, SessionResult, build_cells
from anchormatrix.measure.ramp import spread_pct
from anchormatrix.settings import MatrixSettings, VerdictSettings

FEW, ANCHOR = "few", "anchor"
_ENOUGH_CELLS = 4  # two forms at two tiers
_RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}  # expected range of n normal draws in standard deviations
_FAILED = ("did_not_run", "void", "unmeasurable")


@dataclass(frozen=True)
class AdaptiveLimits:
    """``repeats`` of a session where the decision hangs on them, and ``base_repeats`` of any other.

    ``extra_windows`` may replace noisy ones. A form further above the best than ``hopeless_dispersions`` times the
    mean dispersion (two thirds of that once it has all its repeats), within ``hopeless_min_pct`` and
    ``hopeless_max_pct``, cannot win any more. Above ``give_up_pct`` of dispersion nothing more is tried.
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

    @property
    def all_windows(self) -> int:
        """Windows that may be needed at most; jobs of those that are not needed only write why."""
        return self.windows + self.extra_windows


def limits_from(matrix: MatrixSettings, verdict: VerdictSettings, *, extra_windows: int = 1) -> AdaptiveLimits:
    """The policy's limits from the configuration; the derived ones follow from the noise that the rules allow.

    Noise within the rules can move a step by the dispersion limit and a window by the drift limit, so a form that is
    further behind than both together never wins; noise half as large again as its limit does not pass by luck.
    """
    return AdaptiveLimits(
        repeats=matrix.repeats,
        base_repeats=max(2, -(-matrix.repeats // matrix.windows)),
        windows=matrix.windows,
        extra_windows=extra_windows,
        dispersion_pct=verdict.dispersion_pct,
        noise_floor_pct=verdict.noise_floor_pct,
        hopeless_min_pct=1.5 * verdict.noise_floor_pct,
        hopeless_max_pct=verdict.dispersion_pct + verdict.window_drift_pct,
        give_up_pct=1.5 * verdict.dispersion_pct,
    )


@dataclass(frozen=True)
class Order:
    """What to do for one form in one window. ``skip`` is the reason to measure nothing, empty when it is measured.

    The session makes ``repeats`` few–anchor pairs; with ``stop_above_s`` it ends as soon as an anchor step lies above.
    """

    form: str
    window: int
    repeats: int = 0
    stop_above_s: float | None = None
    skip: str = ""

    def stop(self, anchor_s: Sequence[float]) -> str:
        """Why the session ends now, given its anchor steps so far; empty to go on."""
        if self.stop_above_s is None or not anchor_s or min(anchor_s) <= self.stop_above_s:
            return ""
        return (
            f"cannot win any more: {min(anchor_s):.4g} s per step after {_times(len(anchor_s))}, "
            f"noise reaches {self.stop_above_s:.4g} s"
        )


def sequence(forms: Sequence[str], windows: int) -> tuple[tuple[str, int], ...]:
    """The sessions in the order they are run: windows adjacent, every second one reversed."""
    return tuple(
        (form, number) for number in range(1, windows + 1) for form in (forms if number % 2 else tuple(reversed(forms)))
    )


def next_order(forms: Sequence[str], seen: Sequence[SessionResult], limits: AdaptiveLimits) -> Order | None:
    """What to measure next, leaving out every session that need not be measured; None when all is done."""
    done = {(session.form, session.window) for session in seen}
    for form, window in sequence(forms, limits.all_windows):
        if (form, window) not in done:
            order = order_for(form, window, forms, seen, limits)
            if not order.skip:
                return order
    return None


def order_for(
    form: str, window: int, forms: Sequence[str], seen: Sequence[SessionResult], limits: AdaptiveLimits
) -> Order:
    """What to do for one form in one window, given every session before it in :func:`sequence`."""
    state = _State(
        tuple(forms), [session for session in seen if (session.form, session.window) != (form, window)], limits
    )
    skip = state.why_skip(form, window)
    if skip:
        return Order(form, window, skip=skip)
    best = state.best_step(window) if state.enough_rivals(form, window) else None
    stop = None if best is None else best * (1 + state.reach_pct(window) / 100)
    return Order(form, window, state.repeats(window), stop)


def skipped(forms: Sequence[str], seen: Sequence[SessionResult], limits: AdaptiveLimits) -> tuple[Order, ...]:
    """Every session of the full design that was left out, with its reason."""
    done = {(session.form, session.window) for session in seen if session.status != "skipped"}
    return tuple(
        order
        for form, window in sequence(forms, limits.windows)
        if (form, window) not in done
        if (order := order_for(form, window, forms, seen, limits)).skip
    )


def contenders(forms: Sequence[str], seen: Sequence[SessionResult], limits: AdaptiveLimits) -> tuple[str, ...]:
    """The forms that the verdict speaks of: those still able to win, and those that did not run."""
    state = _State(tuple(forms), list(seen), limits)
    able = state.able(max((session.window for session in seen), default=0) + 1)
    return tuple(form for form in forms if form in able or state.failed(form))


def judged_sessions(
    forms: Sequence[str], seen: Sequence[SessionResult], limits: AdaptiveLimits
) -> tuple[tuple[SessionResult, ...], dict[int, int]]:
    """The sessions the verdict rests on: contenders in windows that count, renumbered from 1; and new → old numbers.

    A noisy window does not count when enough others do; with too few clean ones all are kept, and the verdict says so.
    """
    state = _State(tuple(forms), list(seen), limits)
    chosen = contenders(forms, seen, limits)
    clean = [window for window in state.complete_windows(chosen) if not state.noise(window)]
    used = clean if len(clean) >= limits.windows else sorted({session.window for session in seen})
    numbers = {old: new for new, old in enumerate(used, 1)}
    kept = tuple(
        replace(session, window=numbers[session.window])
        for session in seen
        if session.form in chosen and session.window in numbers and session.status != "skipped"
    )
    return kept, {new: old for old, new in numbers.items()}


def judged_cells(kept: Iterable[SessionResult], limits: AdaptiveLimits) -> tuple[Cell, ...]:
    """Cells of the sessions that count. Over all windows, the dispersion is that of all repeats together.

    That is stricter than the worst of the windows: what drifts between them counts as noise, because each window alone
    has too few repeats to tell.
    """
    cells = build_cells(kept, repeats=limits.base_repeats, dispersion_pct=limits.dispersion_pct)
    return tuple(_pooled(cell, limits) if cell.window == ALL else cell for cell in cells)


def _pooled(cell: Cell, limits: AdaptiveLimits) -> Cell:
    spread, reason = spread_pct(cell.values_s), cell.reason
    if not reason and len(cell.values_s) < limits.repeats:
        reason = f"{len(cell.values_s)} of {limits.repeats} repeats"
    if not reason and spread > limits.dispersion_pct:
        reason = f"dispersion {spread:.1f} % over all windows is above {limits.dispersion_pct:g} %"
    return replace(cell, dispersion_pct=max(spread, cell.dispersion_pct), reason=reason)


class _State:
    """What is known before a session."""

    def __init__(self, forms: tuple[str, ...], seen: list[SessionResult], limits: AdaptiveLimits) -> None:
        self.forms, self.limits = forms, limits
        self.measured = {(s.form, s.window): s for s in seen if s.status == "measured"}
        self.tried = {(s.form, s.window): s for s in seen}

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
        own = [s for (name, _), s in self.tried.items() if name == form and s.status != "skipped"]
        return bool(own) and all(session.status in _FAILED for session in own)

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
        session = self.measured.get((form, 1))
        return session is None or len(session.values_s.get(ANCHOR, ())) >= self.limits.base_repeats

    def enough_rivals(self, form: str, window: int) -> bool:
        """Whether two forms of different splits are measured whole in this window, so that this one may be stopped."""
        whole = [
            name
            for name in self.forms
            if name != form
            and (session := self.measured.get((name, window)))
            and len(session.values_s.get(ANCHOR, ())) >= self.repeats(window)
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
        spreads = [
            spread_pct(values) * _RANGES[3] / _RANGES[min(len(values), max(_RANGES))]
            for (_, number), session in self.measured.items()
            if number <= window
            for values in session.values_s.values()
            if len(values) > 1
        ]
        return fmean(spreads) if len(spreads) >= _ENOUGH_CELLS else self.limits.dispersion_pct

    def _repeated(self, form: str, window: int) -> bool:
        session = self.measured.get((form, window))
        return session is not None and len(session.values_s.get(ANCHOR, ())) >= self.limits.base_repeats

    def reach_pct(self, window: int, *, whole: bool = False) -> float:
        """How far behind the best noise could have put the best form: by one request, or by a ``whole`` median."""
        limits = self.limits
        reach = limits.hopeless_dispersions * self.dispersion(window) * (2 / 3 if whole else 1)
        return min(limits.hopeless_max_pct, max(limits.hopeless_min_pct, reach))

    def repeats(self, window: int) -> int:
        """Pairs of a session: the base number unless the decision hangs on more."""
        if window == 1:
            return self.limits.base_repeats
        steps = sorted(step for form in self.forms if (step := self.anchor(form, 1)) is not None)
        noise = self.dispersion(1)
        floor = max(self.limits.noise_floor_pct, noise)
        close = len(steps) > 1 and abs(100 * (steps[1] / steps[0] - 1) - floor) <= noise
        return self.limits.repeats if close else self.limits.base_repeats

    def why_skip(self, form: str, window: int) -> str:
        """Why a session need not be measured; empty when it must be."""
        limits = self.limits
        if self.failed(form):
            return "it did not run through in an earlier window"
        gave_up = self._gave_up(window)
        if gave_up:
            return gave_up
        if window == 1:
            return ""
        able = self.able(window)
        if form not in able:
            return f"it cannot win any more: {self._behind(form, window)}"
        if len(able) < 2:
            return "no other form is left to compare it with"
        if window > limits.windows:
            return self._why_no_extra(form, window)
        return ""

    def _gave_up(self, window: int) -> str:
        for number in range(1, window + 1):
            found = self._noisiest(number)
            if found and found[0] > self.limits.give_up_pct:
                return (
                    f"{found[1]} disperses by {found[0]:.1f} % in window {number}: far above the limit of "
                    f"{self.limits.dispersion_pct:g} %, nothing may be ranked until the noise is fixed"
                )
        return ""

    def _why_no_extra(self, form: str, window: int) -> str:
        able = tuple(self.able(window))
        clean = [number for number in self.complete_windows(able) if number < window and not self.noise(number)]
        if len(clean) >= self.limits.windows:
            return "enough windows are clean"
        here = [other for other in self.forms if (other, window) in self.measured]
        if here and self.noise(window):
            return f"{self.noise(window)}: this window cannot count any more"
        return ""

    def _behind(self, form: str, window: int) -> str:
        for number in range(1, window):
            best, step = self.best_step(number), self.anchor(form, number)
            reach = self.reach_pct(number, whole=self._repeated(form, number))
            if best and step and 100 * (step / best - 1) > reach:
                count = len(self.measured[form, number].values_s[ANCHOR])
                return (
                    f"{100 * (step / best - 1):.1f} % behind in window {number} after {_times(count)}, "
                    f"noise here can undo {reach:.1f} %"
                )
        return "two other forms are closer"


def _times(count: int) -> str:
    return f"{count} repeat{'s' if count > 1 else ''}"


def _two_splits(ranked: Iterable[str]) -> list[str]:
    """The first form and the next one of another split."""
    names = list(ranked)
    if not names:
        return []
    first = parse_form(names[0]).split
    other = next((name for name in names[1:] if parse_form(name).split != first), None)
    return [names[0]] if other is None else [names[0], other]
