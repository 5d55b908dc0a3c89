"""One cell measured again, ``cell=FORM/TIER``: what is asked for, what comes with it, what a person must know first."""

from __future__ import annotations

from collections.abc import Sequence

from anchormatrix.errors import ConfigError
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import ContractList, LedgerEntry
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.values import Tier
from anchormatrix.records.settings.whole import Settings


def split_cell(settings: Settings) -> tuple[Form, str]:
    """The form and the tier of ``cell=FORM/TIER``. Raises :class:`ConfigError` when the matrix has no such cell."""
    name, _, tier = (settings.cell or "").partition("/")
    form = parse_form(name)
    if tier not in list(Tier):
        raise ConfigError(f"{tier!r} is not a tier", where="cell", expected=f"one of {', '.join(Tier)}")
    if form.cards not in settings.matrix.sizes:
        raise ConfigError(
            f"{form.name} runs on {form.cards} cards", where="cell", expected=f"a form of {list(settings.matrix.sizes)}"
        )
    return form, tier


def check_measured(form: Form, names: Sequence[str]) -> None:
    """Raise :class:`ConfigError` when a form is none of those measured on its size."""
    if form.name not in names:
        raise ConfigError(f"{form.name} is not in the matrix", where="cell", expected=f"one of {', '.join(names)}")


def reference_of(form: str, forms: Sequence[str]) -> str:
    """The reference form of a form's pair: the first form of its size, or the second for the first itself."""
    others = [name for name in forms if name != form]
    return others[0] if others else form


def cell_notices(form: Form, listed: ContractList, ledger: Sequence[LedgerEntry], sessions: int) -> tuple[str, ...]:
    """What becomes of the cell when its card group is another one now; nothing when the group still stands.

    ``sessions`` is how many its size has now.
    """
    now = listed.of_size(form.cards)
    if not now:
        reason = next((size.reason for size in listed.unavailable if size.size == form.cards), "")
        return (f"{form.name} cannot be measured again: no card group of {form.cards} is left ({reason})",)
    last = next((row for row in reversed(ledger) if row.size == form.cards), None)
    if last is None or last.id in {contract.id for contract in now}:
        return ()
    return (
        f"the contract of {form.cards} cards changed since it was measured (cards {show(last.cards)} then,"
        f" {show(now[0].cards)} now): its whole size is measured again, {sessions} sessions",
    )
