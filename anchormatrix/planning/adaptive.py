"""The design of a matrix: which sessions are measured under it, and which are left out, with the reason for each.

The full design measures every form in every window. The adaptive one looks at what the windows so far tell
(:mod:`anchormatrix.planning.ranking`) and starts only the servers that the choice of the fastest form hangs on: the
leader and the forms that could still be faster by more than the indifference zone. Windows stay adjacent, every second
one in reverse order, and a window's own sessions never change what is measured in it. So every measuring job can ask
by itself, and asking again gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anchormatrix.planning.ranking import Rule, Starts, select
from anchormatrix.records.conclusions.selection import Selection, Standing
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.store.sessions import TimedSession

_RAN = {SessionStatus.MEASURED, SessionStatus.CONTAMINATED}
_FAILED = {SessionStatus.DID_NOT_RUN, SessionStatus.VOID, SessionStatus.UNMEASURABLE}


@dataclass(frozen=True)
class MatrixDesign:
    """How a matrix is measured. ``repeats`` few–anchor pairs in a session, sessions in ``windows`` at most."""

    repeats: int = 3
    windows: int = 2
    adaptive: bool = False
    rule: Rule = field(default_factory=Rule)


@dataclass(frozen=True)
class Order:
    """What to do for one form in one window: ``repeats`` few–anchor pairs. ``skip`` is the reason to measure nothing,
    empty when it is measured.
    """

    form: str
    window: int
    repeats: int = 0
    skip: str = ""


def sequence(forms: Sequence[str], windows: int) -> tuple[tuple[str, int], ...]:
    """The sessions in the order they are run: windows adjacent, every second one reversed."""
    return tuple(
        (form, number) for number in range(1, windows + 1) for form in (forms if number % 2 else tuple(reversed(forms)))
    )


def starts_of(sessions: Iterable[TimedSession], repeats: int, tier: str = ANCHOR) -> Starts:
    """The repeats of every start that may be compared, by form and window.

    A start with fewer than ``repeats``, whose ramp did not settle before them, or that others disturbed, is none: a
    form that has only such ones is there with no start.
    """
    found: dict[str, dict[int, Sequence[float]]] = {}
    for timed in sessions:
        session, values = timed.session, timed.values_s.get(tier, ())
        if session.status in _RAN:
            found.setdefault(session.form, {})
        if len(values) >= repeats and session.steady:
            found[session.form][session.window] = values
    return found


def next_order(forms: Sequence[str], seen: Sequence[TimedSession], design: MatrixDesign) -> Order | None:
    """What to measure next, leaving out every session that need not be measured; None when all is done."""
    done = {timed.place for timed in seen}
    for form, window in sequence(forms, design.windows):
        if (form, window) not in done:
            order = order_for(form, window, forms, seen, design)
            if not order.skip:
                return order
    return None


def order_for(
    form: str, window: int, forms: Sequence[str], seen: Sequence[TimedSession], design: MatrixDesign
) -> Order:
    """What to do for one form in one window. Only sessions of the windows before it count."""
    if not design.adaptive:
        return Order(form, window, design.repeats)
    before = [timed for timed in seen if timed.session.window < window]
    return Order(form, window, design.repeats, _why_skip(form, window, forms, before, design))


def due(forms: Sequence[str], seen: Sequence[TimedSession], design: MatrixDesign) -> dict[str, tuple[int, ...]]:
    """The windows that each form must have been measured in for the matrix to be whole."""
    numbers = range(1, design.windows + 1)
    return {form: tuple(w for w in numbers if not order_for(form, w, forms, seen, design).skip) for form in forms}


def _why_skip(
    form: str, window: int, forms: Sequence[str], before: Sequence[TimedSession], design: MatrixDesign
) -> str:
    """Why a session need not be measured; empty when it must be."""
    if window == 1:
        return ""
    if _failed(form, before):
        return "it gave no numbers in an earlier window"
    able = [name for name in forms if not _failed(name, before)]
    if len(able) < 2:
        return "no other form is left to compare it with"
    found = select(starts_of(before, design.repeats), design.rule)
    if found.decided:
        return f"the choice is made: {_best(found)}"
    if found.hopeless:
        return f"more starts would not decide: {found.hopeless}"
    own = next((rival for rival in found.rivals if rival.form == form), None)
    if own is None or own.standing is Standing.OPEN:
        return ""
    if own.standing is Standing.BEHIND:
        return f"it cannot win any more: {own.behind_pct:.1f} % behind {found.leader}"
    return f"it is not faster than {found.leader} by more than {found.zone_pct:g} %"


def _best(found: Selection) -> str:
    nearest = found.rivals[0]
    if nearest.standing is Standing.BEHIND:
        return f"{found.leader} is faster than every other form"
    return f"no form is faster than {found.leader} by more than {found.zone_pct:g} %"


def _failed(form: str, seen: Sequence[TimedSession]) -> bool:
    """Whether the form was tried and no session of it gave numbers."""
    own = {timed.session.status for timed in seen if timed.session.form == form}
    own.discard(SessionStatus.SKIPPED)
    return bool(own) and own <= _FAILED
