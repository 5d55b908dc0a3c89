"""The results folder as a :class:`~anchormatrix.report.model.Report`: which files, and what each must say."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from anchormatrix.errors import ConfigError
from anchormatrix.records.form import parse_form
from anchormatrix.records.plan import RunPlan
from anchormatrix.records.settings import Settings
from anchormatrix.report import model, parse
from anchormatrix.report.facts import ContractFacts, LedgerEntry
from anchormatrix.report.sessions import OUTPUT_COLUMNS, output_from, session_from
from anchormatrix.report.source import Part, Source
from anchormatrix.report.step_breakdown import anatomy_from


def load_report(settings: Settings, results: Path, out: Path, plan: RunPlan | None = None) -> model.Report:
    """Read everything below ``results`` that the report shows; ``decision.json`` lies in ``out``.

    Of a contract in the plan the planned forms and windows are shown, of another one all that is stored.
    Never raises for a result file: what is missing is a part with its reason, what is unusable a problem.
    """
    source = Source(results)
    contracts = source.part(
        results / "contracts.json", parse.contracts_from, "no contract was resolved: run the contract target"
    )
    ledger = source.lines(results / "contracts.jsonl", parse.ledger_entry_from)
    current = _versioned(contracts.value.current if contracts.value else (), ledger)
    ranked = sorted(current, key=lambda facts: (facts.size, facts.rank))
    everything = [_measured(source, facts, _wanted(plan, facts)) for facts in ranked]
    rejected = [measured for measured in everything if _is_rejected(measured)]
    chosen: dict[int, model.Measured] = {}
    for measured in everything:
        if not _is_rejected(measured):
            chosen.setdefault(measured.contract.size, measured)
    cards = source.part(results / "health.json", parse.cards_from, "the cards were not read: run the health target")
    verdict = settings.verdict
    report = model.Report(
        title=settings.report.title,
        host=settings.host.alias,
        model=settings.engine.model,
        sizes=tuple(dict.fromkeys((*settings.matrix.sizes, *sorted(chosen)))),
        tiers=dict(settings.matrix.tiers),
        repeats=settings.matrix.repeats,
        windows=settings.matrix.windows,
        dispersion_limit_pct=verdict.dispersion_pct,
        drift_limit_pct=verdict.drift_pct,
        noise_floor_pct=verdict.noise_floor_pct,
        window_drift_limit_pct=verdict.window_drift_pct,
        workload=_workload(settings),
        topology=source.part(
            results / "topology.json", parse.topology_from, "the links were not read: run the topology target"
        ),
        cards=Part(cards.value[0], cards.missing) if cards.value else Part(None, cards.missing),
        versions=cards.value[1] if cards.value else (),
        contracts=contracts,
        measured=tuple(chosen.values()),
        rejected=tuple(rejected),
        ledger=ledger,
        choices=source.part(
            out / "decision.json", parse.choices_from, "no decision.json: the selection stage has not concluded"
        ),
        reruns=source.lines(results / "reruns.jsonl", parse.rerun_from),
        problems=tuple(source.problems),
    )
    return _without_damaged(report)


def _versioned(contracts: tuple[ContractFacts, ...], ledger: tuple[LedgerEntry, ...]) -> tuple[ContractFacts, ...]:
    """Contracts with the version they were entered under; a candidate that was not entered keeps the planned one."""
    entered = {entry.id: entry.version for entry in ledger}
    return tuple(replace(facts, version=entered.get(facts.id, facts.version)) for facts in contracts)


def _without_damaged(report: model.Report) -> model.Report:
    """The report without decisions and scaling that rest on a group with damaged cards."""
    damaged = {one.contract.id: one.contract.size for one in report.measured if report.damaged(one)}
    choices = report.choices.value
    if choices is None or not damaged:
        return report
    ends = re.compile(rf"\b(?:from|to) (?:{'|'.join(map(str, damaged.values()))})\b(?: to \d+)? cards")
    kept = replace(
        choices,
        by_contract={key: choice for key, choice in choices.by_contract.items() if key not in damaged},
        scaling=tuple(text for text in choices.scaling if not ends.search(text)),
    )
    return replace(report, choices=replace(report.choices, value=kept))


def _is_rejected(measured: model.Measured) -> bool:
    return measured.smoke.value is not None and measured.smoke.value.status == "rejected"


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


def _wanted(plan: RunPlan | None, facts: ContractFacts) -> _Wanted:
    planned = plan.find(facts.id) if plan else None
    return _Wanted(planned.forms or None, planned.windows) if planned else _Wanted()


def _measured(source: Source, facts: ContractFacts, wanted: _Wanted) -> model.Measured:
    folder = source.root / facts.id
    cells = source.rows(
        folder / "cells.csv", parse.CELL_COLUMNS, parse.cell_from, "no cell was measured under this contract yet"
    )
    if cells.value:
        cells = replace(cells, value=tuple(cell for cell in cells.value if wanted.form(cell.form)))
    verdict = source.part(folder / "verdict.json", parse.verdict_from, "no verdict was reached yet")
    names = list(dict.fromkeys(cell.form for cell in cells.value or ()))
    if verdict.value:
        names += [form for form, _ in verdict.value.did_not_run if form not in names]
    names += [name for name in _form_folders(folder) if name not in names and (wanted.forms or not cells.value)]
    names = [name for name in names if wanted.form(name)]
    sessions = []
    for form in names:
        for path in sorted((folder / form).glob("w*/session.json"), key=lambda path: (len(path.parent.name), path)):
            if not wanted.session(path):
                continue
            found = source.part(path, session_from, "")
            if found.value:
                rows = source.rows(path.with_name("requests.csv"), OUTPUT_COLUMNS, output_from, "").value or ()
                sessions.append(replace(found.value, outputs=tuple(row for row in rows if row is not None)))
    return model.Measured(
        contract=facts,
        smoke=source.part(folder / "smoke.json", parse.smoke_from, "the smoke has not run"),
        cells=cells,
        verdict=verdict,
        sessions=tuple(sessions),
        anatomy={
            form: source.part(folder / form / "attribution.json", anatomy_from, "no capture was analysed")
            for form in names
        },
        gates=source.part(folder / "gates.json", parse.gates_from, "the gates were not evaluated for this contract"),
        bandwidth=source.part(
            source.root / "bandwidth" / f"{facts.id}.json", parse.sweep_from, "no size sweep of this group was made"
        ),
    )


def _form_folders(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            found.append(parse_form(path.name).name)
        except ConfigError:
            continue
    return found


def _workload(settings: Settings) -> tuple[tuple[str, str], ...]:
    work = settings.workload
    frames = f" × {work.frames} frames" if work.frames > 1 else ""
    return (
        ("Model", settings.engine.model),
        ("Geometry", f"{work.width} × {work.height}{frames}"),
        ("Guidance", f"{work.guidance_scale:g}"),
        ("Seed", str(work.seed)),
        ("Prompt", work.prompt),
    )
