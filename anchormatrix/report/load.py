"""From the results folder to a :class:`~anchormatrix.report.model.Report`: which files, and what each is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from anchormatrix.decide.effects.features import without_dead
from anchormatrix.errors import ConfigError
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.bandwidth import SizeSweep
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.conclusions.decision import Decision
from anchormatrix.records.conclusions.gates import Gates
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import ContractList, LedgerEntry, ListedContract
from anchormatrix.records.form import parse_form
from anchormatrix.records.host import HostHealth, Topology
from anchormatrix.records.outputs import Outputs
from anchormatrix.records.plan import RunPlan
from anchormatrix.records.requests import RequestRow
from anchormatrix.records.rerun import Rerun
from anchormatrix.records.session import Session
from anchormatrix.records.settings.whole import Settings
from anchormatrix.records.smoke import Smoke, SmokeStatus
from anchormatrix.report import model
from anchormatrix.report.source import Part, Source
from anchormatrix.store.sessions import TimedSession


def load_report(settings: Settings, results: Path, out: Path, plan: RunPlan | None = None) -> model.Report:
    """Read everything below ``results`` that the report shows; ``decision.json`` lies in ``out``.

    Of a contract in the plan the planned forms and windows are shown, of another one all that is stored.

    Never raises for a result file: what is missing is a part with its reason, what is unusable a problem.
    """
    source = Source(results)
    contracts = source.part(
        results / "contracts.json", ContractList, "no contract was resolved: run the contract target"
    )
    ledger = source.lines(results / "contracts.jsonl", LedgerEntry)
    current = _versioned(contracts.value.contracts if contracts.value else (), ledger)
    ranked = sorted(current, key=lambda contract: (contract.size, contract.rank))
    everything = [_measured(source, contract, _wanted(plan, contract)) for contract in ranked]
    rejected = [measured for measured in everything if _is_rejected(measured)]
    chosen: dict[int, model.Measured] = {}
    for measured in everything:
        if not _is_rejected(measured):
            chosen.setdefault(measured.contract.size, measured)
    report = model.Report(
        title=settings.report.title,
        host=settings.host.alias,
        model=settings.engine.model,
        sizes=tuple(dict.fromkeys((*settings.matrix.sizes, *sorted(chosen)))),
        tiers=msgspec.structs.asdict(settings.matrix.tiers),
        repeats=settings.matrix.repeats,
        windows=settings.matrix.windows,
        limits=settings.verdict,
        topology=source.part(results / "topology.json", Topology, "the links were not read: run the topology target"),
        health=source.part(results / "health.json", HostHealth, "the cards were not read: run the health target"),
        contracts=contracts,
        measured=tuple(chosen.values()),
        rejected=tuple(rejected),
        ledger=ledger,
        decision=source.part(
            out / "decision.json", Decision, "no decision.json: the selection stage has not concluded"
        ),
        reruns=source.lines(results / "reruns.jsonl", Rerun),
        problems=tuple(source.problems),
    )
    return _without_damaged(report)


def _versioned(contracts: Iterable[ListedContract], ledger: Iterable[LedgerEntry]) -> list[ListedContract]:
    """Contracts with the version they were entered under; a candidate that was not entered keeps the planned one."""
    entered = {entry.id: entry.version for entry in ledger}
    return [
        msgspec.structs.replace(contract, version=entered.get(contract.id, contract.version)) for contract in contracts
    ]


def _without_damaged(report: model.Report) -> model.Report:
    """The report without decisions and scaling that rest on a group with damaged cards."""
    damaged = {one.contract.size for one in report.measured if report.damaged(one)}
    decision = report.decision.value
    if decision is None or not damaged:
        return report
    kept = msgspec.structs.replace(
        decision,
        sizes={key: one for key, one in decision.sizes.items() if one.size not in damaged},
        scaling=tuple(one for one in decision.scaling if not {one.cards_from, one.cards_to} & damaged),
    )
    return replace(report, decision=replace(report.decision, value=kept))


def _is_rejected(measured: model.Measured) -> bool:
    return measured.smoke.value is not None and measured.smoke.value.status is SmokeStatus.REJECTED


@dataclass(frozen=True)
class _Wanted:
    """The planned forms and windows of a contract; None where nobody can tell, and all that is stored is shown."""

    forms: tuple[str, ...] | None = None
    windows: int | None = None

    def form(self, name: str) -> bool:
        """Whether a form is shown."""
        return self.forms is None or name in self.forms

    def session(self, path: Path) -> bool:
        """Whether a session is shown, by its folder ``w<window>``."""
        return self.windows is None or not (number := path.parent.name[1:]).isdecimal() or int(number) <= self.windows


def _wanted(plan: RunPlan | None, contract: ListedContract) -> _Wanted:
    planned = plan.find(contract.id) if plan else None
    return _Wanted(planned.forms or None, planned.windows) if planned else _Wanted()


def _measured(source: Source, contract: ListedContract, wanted: _Wanted) -> model.Measured:
    folder = source.root / contract.id
    cells = source.rows(folder / "cells.csv", Cell, "no cell was measured under this contract yet")
    cells = _of_forms(source, folder / "cells.csv", cells, [cell.form for cell in cells.value or ()])
    if cells.value:
        cells = replace(cells, value=tuple(cell for cell in cells.value if wanted.form(cell.form)))
    verdict = source.part(folder / "verdict.json", Verdict, "no verdict was reached yet")
    stopped = [entry.form for entry in verdict.value.did_not_run] if verdict.value else []
    verdict = _of_forms(source, folder / "verdict.json", verdict, stopped)
    names = list(dict.fromkeys([cell.form for cell in cells.value or ()] + (stopped if verdict.value else [])))
    names += [name for name in _form_folders(folder) if name not in names and (wanted.forms or not cells.value)]
    names = [name for name in names if wanted.form(name)]
    paths = [path for name in names for path in _session_files(folder / name) if wanted.session(path)]
    gates = source.part(folder / "gates.json", Gates, "the gates were not evaluated for this contract")
    sessions = [timed for path in paths if (timed := _session(source, path))]
    outputs = source.part(folder / "outputs.json", Outputs, "the outputs were not compared")
    if outputs.value:
        sessions = [timed.held_to(outputs.value) for timed in sessions]
    return model.Measured(
        contract=contract,
        smoke=source.part(folder / "smoke.json", Smoke, "the smoke has not run"),
        cells=cells,
        verdict=verdict,
        sessions=without_dead(sessions, gates.value.effects if gates.value else {}),
        attributions={
            form: source.part(folder / form / "attribution.json", Attribution, "no capture was analysed")
            for form in names
        },
        gates=gates,
        outputs=outputs,
        bandwidth=source.part(
            source.root / "bandwidth" / f"{contract.id}.json", SizeSweep, "no size sweep of this group was made"
        ),
    )


def _session(source: Source, path: Path) -> TimedSession | None:
    session = source.part(path, Session, "").value
    rows = source.rows(path.with_name("requests.csv"), RequestRow, "").value if session else None
    return TimedSession(session, rows or ()) if session else None


def _session_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("w*/session.json"), key=lambda path: (len(path.parent.name), path))


def _of_forms(source: Source, path: Path, part: Part[model.T], names: Iterable[str]) -> Part[model.T]:
    """The part, unless it names something that is no form: such a name must not become a path or a label."""
    for name in names:
        try:
            parse_form(name)
        except ConfigError as error:
            source.report(path, str(error))
            return Part(None, f"{path.name} cannot be used: {error}")
    return part


def _form_folders(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found.append(parse_form(path.name).name)
        except ConfigError:
            continue
    return found
