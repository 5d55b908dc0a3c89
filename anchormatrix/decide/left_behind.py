"""The results of a contract that belong to the plan in effect, and those that an earlier one left behind.

A form taken out of the matrix keeps its folder, and a night later nobody remembers it: it takes no part in a decision
it was not asked for, but one that was faster than the winner is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from anchormatrix.decide.cells import build_cells
from anchormatrix.decide.effects.features import effects, without_dead
from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.conclusions.cells import ALL
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.outputs import Outputs
from anchormatrix.records.plan import ContractPlan
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import TimedSession, read_session


def planned_sessions(folder: Path, planned: ContractPlan) -> list[Path]:
    """Every stored ``session.json`` of the planned forms and windows in a contract's folder, in that order."""
    wanted = (
        folder / form / f"w{window}" / "session.json"
        for form in planned.forms
        for window in range(1, planned.windows + 1)
    )
    return [path for path in wanted if path.exists()]


def read_attributions(folder: Path, forms: Iterable[str], name: str = "attribution.json") -> dict[str, Attribution]:
    """The attributions that a contract's folder holds of some forms; ``attribution-anchor.json`` are of late steps."""
    analysed = {form: path for form in forms if (path := folder / form / name).exists()}
    return {name: read_record(path, Attribution) for name, path in analysed.items()}


def read_outputs(folder: Path, contract: str) -> Outputs:
    """What a contract's outputs say; nothing when they were not compared."""
    path = folder / "outputs.json"
    return read_record(path, Outputs) if path.exists() else Outputs(contract, None, 0.0, ())


def left_behind(folder: Path, contract: str, forms: Collection[str], settings: Settings) -> tuple[FormEvidence, ...]:
    """The forms with an anchor step under a contract that are not in the matrix any more.

    ``usable`` and ``reason`` are by the limits in effect. What cannot be read of such a form says nothing: nothing that
    was asked for rests on it.
    """
    found = []
    for form in _other_forms(folder, forms):
        sessions = _readable(sorted((folder / form.name).glob("w*/session.json")), contract)
        proved = effects((timed.session for timed in sessions), _attributed(folder, form), settings.model)
        counted = without_dead(sessions, proved)
        cells = build_cells(counted, repeats=settings.matrix.repeats, dispersion_pct=settings.verdict.dispersion_pct)
        for cell in cells:
            if (cell.form, cell.tier, cell.window) == (form.name, ANCHOR, ALL):
                found.append(
                    FormEvidence(
                        form,
                        SessionStatus.MEASURED,
                        cell.reason,
                        step_anchor_s=cell.step_s,
                        dispersion_pct=cell.dispersion_pct,
                        usable=cell.usable,
                    )
                )
    return tuple(found)


def _other_forms(folder: Path, forms: Collection[str]) -> list[Form]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            form = parse_form(path.name)
        except ConfigError:
            continue  # a file of the contract's own
        if form.name not in forms:
            found.append(form)
    return found


def _attributed(folder: Path, form: Form) -> dict[str, Attribution]:
    try:
        return read_attributions(folder, [form.name])
    except InputError:
        return {}


def _readable(paths: Sequence[Path], contract: str) -> list[TimedSession]:
    found = []
    for path in paths:
        try:
            found.append(read_session(path, contract))
        except InputError:
            continue
    return found
