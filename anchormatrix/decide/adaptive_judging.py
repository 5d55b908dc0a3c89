"""The sessions that a verdict is made of: all under the full design, else those of the contenders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from anchormatrix.decide.cells import build_cells
from anchormatrix.planning.adaptive import contenders
from anchormatrix.planning.adaptive_state import AdaptiveLimits, AdaptiveState
from anchormatrix.planning.configured import adaptive_limits
from anchormatrix.records.cells import ALL, Cell, spread_pct
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.sessions import TimedSession


@dataclass(frozen=True)
class ToJudge:
    """What the verdict of a contract is made of; ``windows`` maps its windows, from 1, to those that were measured."""

    sessions: tuple[TimedSession, ...]
    cells: tuple[Cell, ...]
    forms: tuple[str, ...]
    windows: Mapping[int, int]


def to_judge(sessions: Sequence[TimedSession], forms: Sequence[str], settings: Settings) -> ToJudge:
    """Cells and sessions for the verdict: all of them under the full design, else the contenders' that count.

    The cells of forms that left the adaptive race are among them, unusable: they are shown, never ranked.
    ``forms`` are the planned ones in the order of the first window; a form named twice counts once.
    """
    planned = tuple(dict.fromkeys(forms))
    limits = adaptive_limits(settings)
    if limits is None:
        cells = build_cells(sessions, repeats=settings.matrix.repeats, dispersion_pct=settings.verdict.dispersion_pct)
        windows = {window: window for window in range(1, settings.matrix.windows + 1)}
        return ToJudge(tuple(sessions), cells, planned, windows)
    kept, numbers = judged_sessions(planned, sessions, limits)
    windows = numbers if len(numbers) >= limits.windows else {w: w for w in range(1, limits.windows + 1)}
    cells = (*judged_cells(kept, limits), *dropped_cells(planned, sessions, limits))
    return ToJudge(kept, cells, contenders(planned, sessions, limits), windows)


def judged_sessions(
    forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits
) -> tuple[tuple[TimedSession, ...], dict[int, int]]:
    """The sessions the verdict rests on: contenders in windows that count, renumbered from 1; and new → old numbers.

    A noisy window does not count when enough others do; with too few clean ones all are kept, skipped sessions with
    their reasons among them, and the verdict says so.
    """
    state = AdaptiveState(tuple(forms), list(seen), limits)
    chosen = contenders(forms, seen, limits)
    clean = [window for window in state.complete_windows(chosen) if not state.noise(window)]
    used = clean if len(clean) >= limits.windows else sorted({timed.session.window for timed in seen})
    numbers = {old: new for new, old in enumerate(used, 1)}
    kept = tuple(
        TimedSession(replace(session, window=numbers[session.window]), timed.requests)
        for timed in seen
        for session in [timed.session]
        if session.form in chosen
        and session.window in numbers
        and not (session.status is SessionStatus.SKIPPED and state.failed(session.form))  # told is why it failed
    )
    return kept, {new: old for old, new in numbers.items()}


def dropped_cells(forms: Sequence[str], seen: Sequence[TimedSession], limits: AdaptiveLimits) -> tuple[Cell, ...]:
    """What was measured of the forms that left the race, one cell per tier over all windows, unusable with the reason.

    They have too few repeats to be ranked, and were found too far behind to need more.
    """
    state = AdaptiveState(tuple(forms), list(seen), limits)
    chosen = contenders(forms, seen, limits)
    last = max((timed.session.window for timed in seen), default=0)
    own = [timed for timed in seen if timed.session.form in forms and timed.session.form not in chosen]
    return tuple(
        replace(
            cell,
            dispersion_pct=spread_pct(cell.values_s),
            usable=False,
            reason=f"cannot win: {state.behind(cell.form, last + 1)}",
        )
        for cell in build_cells(own, repeats=limits.repeats, dispersion_pct=limits.dispersion_pct)
        if cell.window == ALL
    )


def judged_cells(kept: Iterable[TimedSession], limits: AdaptiveLimits) -> tuple[Cell, ...]:
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
    return replace(cell, dispersion_pct=max(spread, cell.dispersion_pct), usable=not reason, reason=reason)
