"""The adaptive design inside the workflow: every measuring job reads what was measured before it and asks the policy.

A session that is left out still writes its three files, with status ``skipped`` and the reason, so that the workflow
has what it expects and the report can list it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchormatrix.contract import Contract
from anchormatrix.measure.cells import SessionResult, read_session
from anchormatrix.measure.records import Session
from anchormatrix.selection.adaptive import Order, contenders, judged_sessions, order_for, sequence
from anchormatrix.selection.configured import adaptive_limits, forms_of_size
from anchormatrix.settings import Settings

SKIPPED = "skipped"


def order_of_session(
    results: Path,
    contract: Contract,
    form: str,
    window: int,
    settings: Settings,
    *,
    forms: Sequence[str] | None = None,
) -> Order:
    """What the session of a form in a window has to do; under the full design, every repeat and nothing else.

    ``forms`` are the planned forms in the order of the first window (default: as configured). Only sessions that come
    before it in the order of the windows count, so measuring one again asks the same question.
    """
    limits = adaptive_limits(settings)
    if limits is None:
        return Order(form, window, settings.matrix.repeats)
    forms = forms or [item.name for item in forms_of_size(settings, contract.size)]
    order = sequence(forms, limits.all_windows)
    before = order[: order.index((form, window))] if (form, window) in order else order
    return order_for(form, window, forms, _stored(results / contract.id, before), limits)


def skipped_session(contract: Contract, order: Order) -> Session:
    """The session to write instead of measuring."""
    details: dict[str, Any] = {"capture": {"status": "off", "reason": order.skip}}
    return Session(contract.id, order.form, order.window, SKIPPED, order.skip, (), (), {}, (), details)


def sessions_to_judge(
    sessions: Sequence[SessionResult], size: int, settings: Settings, *, forms: Sequence[str] | None = None
) -> tuple[tuple[SessionResult, ...], tuple[str, ...], int, int]:
    """What cells and verdict are made of: sessions, forms, windows, and the repeats that make a cell usable.

    Under the full design everything as configured. Under the adaptive one the contenders in the windows that count,
    renumbered from 1; a later window may have fewer repeats than the first, the windows of a cell together never fewer
    than configured.
    """
    forms = tuple(forms or (item.name for item in forms_of_size(settings, size)))
    limits = adaptive_limits(settings)
    if limits is None:
        return tuple(sessions), forms, settings.matrix.windows, settings.matrix.repeats
    kept, numbers = judged_sessions(forms, sessions, limits)
    windows = max(settings.matrix.windows, len(numbers))
    return kept, contenders(forms, sessions, limits), windows, min(limits.repeats, limits.confirm_repeats)


def _stored(folder: Path, wanted: Sequence[tuple[str, int]]) -> list[SessionResult]:
    paths = [folder / form / f"w{window}" / "session.json" for form, window in wanted]
    return [read_session(path) for path in paths if path.exists()]
