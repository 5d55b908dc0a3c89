"""The adaptive design: which session to measure next, how long, and which to leave out, with the reason for each.

The policy is a pure function of what was measured so far, so that each measuring job can consult it by itself:

- window 1 measures the forms in their order; a form whose anchor step lies further above the best than noise could
  undo is stopped after its first anchor request. That reach is three times the mean dispersion of the cells measured
  so far (about five standard deviations of one request; two times for a median of three), at least one and a half
  times the noise floor and at most what the rules let pass (dispersion limit + window drift limit);
- later windows, in reverse order every second time, measure only the forms that can still win, the best two at least:
  windows stay paired, and no single window decides;
- a session repeats less than under the full design, except for forms whose distance to the best of the first window
  lies so close to the noise floor that the decision hangs on more repeats; a cell's windows together never have fewer
  than the configured ones, and its dispersion is that of all its repeats together;
- a window in which a contender is noisy is not used and, while that may help, replaced by an extra one; a cell far
  above the limit, or a mean dispersion at which the pair's cells will hardly all pass, ends the measuring, because
  nothing may be ranked on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.planning.adaptive_state import AdaptiveLimits, AdaptiveState, times_text
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.policies import MatrixSettings, VerdictSettings
from anchormatrix.store.sessions import TimedSession


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
        give_up_mean_pct=0.75 * verdict.dispersion_pct,
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
            f"cannot win any more: {min(anchor_s):.4g} s per step after {times_text(len(anchor_s))}, "
            f"noise reaches {self.stop_above_s:.4g} s"
        )


def sequence(forms: Sequence[str], windows: int) -> tuple[tuple[str, int], ...]:
    """The sessions in the order they are run: windows adjacent, every second one reversed."""
    return tuple(
        (form, number) for number in range(1, windows + 1) for form in (forms if number % 2 else tuple(reversed(forms)))
    )


def next_order(forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits) -> Order | None:
    """What to measure next, leaving out every session that need not be measured; None when all is done."""
    done = {timed.place for timed in seen}
    for form, window in sequence(forms, limits.all_windows):
        if (form, window) not in done:
            order = order_for(form, window, forms, seen, limits)
            if not order.skip:
                return order
    return None


def order_for(
    form: str, window: int, forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits
) -> Order:
    """What to do for one form in one window, given every session before it in :func:`sequence`."""
    state = AdaptiveState(tuple(forms), [timed for timed in seen if timed.place != (form, window)], limits)
    skip = state.why_skip(form, window)
    if skip:
        return Order(form, window, skip=skip)
    best = state.best_step(window) if state.enough_rivals(form, window) else None
    stop = None if best is None else best * (1 + state.reach_pct(window) / 100)
    return Order(form, window, state.repeats(form, window), stop)


def skipped(forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits) -> tuple[Order, ...]:
    """Every session of the full design that was left out, with its reason."""
    done = {timed.place for timed in seen if timed.session.status is not SessionStatus.SKIPPED}
    return tuple(
        order
        for form, window in sequence(forms, limits.windows)
        if (form, window) not in done
        if (order := order_for(form, window, forms, seen, limits)).skip
    )


def contenders(forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits) -> tuple[str, ...]:
    """The forms that the verdict speaks of: those still able to win, and those that did not run."""
    state = AdaptiveState(tuple(forms), list(seen), limits)
    able = state.able(max((timed.session.window for timed in seen), default=0) + 1)
    return tuple(form for form in forms if form in able or state.failed(form))
