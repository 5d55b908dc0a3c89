"""The adaptive design inside the workflow: every measuring job reads what was measured before it and asks the policy.

A session that is left out still writes its three files, with status ``skipped`` and the reason, so that the workflow
has what it expects and the report can list it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from anchormatrix.planning.adaptive import MatrixDesign, Order, order_for
from anchormatrix.records.contract import Contract
from anchormatrix.records.plan import ContractPlan, PlannedSession
from anchormatrix.records.session import Capture, CaptureStatus, Session, SessionStatus
from anchormatrix.store.sessions import TimedSession, read_session

Counted = Callable[[Sequence[TimedSession]], Sequence[TimedSession]]


def order_of_session(
    folder: Path,
    planned: ContractPlan,
    form: str,
    window: int,
    design: MatrixDesign,
    counted: Counted = tuple,
) -> Order:
    """What the session of a form in a window has to do; under the full design, every repeat and nothing else.

    ``folder`` is the contract's. Only sessions planned before this one count, so measuring one again asks the same
    question; ``counted`` makes of them what they count for.
    """
    if not design.adaptive:
        return Order(form, window, design.repeats)
    this = PlannedSession(form=form, window=window)
    before = planned.sessions[: planned.sessions.index(this)] if this in planned.sessions else planned.sessions
    return order_for(form, window, planned.forms, counted(_stored(folder, before)), design)


def skipped_session(contract: Contract, order: Order, *, generation: int = 0, night: str = "") -> TimedSession:
    """The session to write instead of measuring."""
    return TimedSession(
        Session(
            contract=contract.id,
            form=order.form,
            window=order.window,
            status=SessionStatus.SKIPPED,
            reason=order.skip,
            evidence=(),
            command=(),
            env={},
            capture=Capture(CaptureStatus.OFF, reason=order.skip),
            tries=(),
            generation=generation,
            night=night,
        )
    )


def _stored(folder: Path, wanted: Sequence[PlannedSession]) -> list[TimedSession]:
    paths = [folder / item.form / f"w{item.window}" / "session.json" for item in wanted]
    return [read_session(path) for path in paths if path.exists()]
