"""The adaptive design inside the workflow: every measuring job reads what was measured before it and asks the policy.

A session that is left out still writes its three files, with status ``skipped`` and the reason, so that the workflow
has what it expects and the report can list it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchormatrix.decide.cells import Cell, SessionResult, build_cells, read_session
from anchormatrix.measure.rows import Session
from anchormatrix.planning.adaptive import (
    Order,
    contenders,
    dropped_cells,
    judged_cells,
    judged_sessions,
    order_for,
)
from anchormatrix.planning.configured import adaptive_limits
from anchormatrix.records.contract import Contract
from anchormatrix.records.plan import ContractPlan, PlannedSession
from anchormatrix.records.settings import Settings

SKIPPED = "skipped"


def order_of_session(
    folder: Path,
    planned: ContractPlan,
    form: str,
    window: int,
    settings: Settings,
) -> Order:
    """What the session of a form in a window has to do; under the full design, every repeat and nothing else.

    ``folder`` is the contract's. Only sessions planned before this one count, so measuring one again asks the same
    question.
    """
    limits = adaptive_limits(settings)
    if limits is None:
        return Order(form, window, settings.matrix.repeats)
    this = PlannedSession(form=form, window=window)
    before = planned.sessions[: planned.sessions.index(this)] if this in planned.sessions else planned.sessions
    return order_for(form, window, planned.forms, _stored(folder, before), limits)


def skipped_session(contract: Contract, order: Order) -> Session:
    """The session to write instead of measuring."""
    details: dict[str, Any] = {"capture": {"status": "off", "reason": order.skip}}
    return Session(contract.id, order.form, order.window, SKIPPED, order.skip, (), (), {}, (), details)


@dataclass(frozen=True)
class ToJudge:
    """What the verdict of a contract is made of; ``windows`` maps its windows, from 1, to those that were measured."""

    sessions: tuple[SessionResult, ...]
    cells: tuple[Cell, ...]
    forms: tuple[str, ...]
    windows: Mapping[int, int]


def to_judge(sessions: Sequence[SessionResult], forms: Sequence[str], settings: Settings) -> ToJudge:
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


def _stored(folder: Path, wanted: Sequence[PlannedSession]) -> list[SessionResult]:
    paths = [folder / item.form / f"w{item.window}" / "session.json" for item in wanted]
    return [read_session(path) for path in paths if path.exists()]
