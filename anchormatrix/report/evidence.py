"""The report's facts as Markdown, to paste into a ticket: the same sentences and tables as the page."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anchormatrix.report import captions
from anchormatrix.report.answer import SizeAnswer
from anchormatrix.report.captured_steps import analysed, why_not_analysed
from anchormatrix.report.html import command_line
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.opening import opening
from anchormatrix.report.source import clean_text
from anchormatrix.report.tables import analysis, cells, contracts, host, outputs, sessions, speedup
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import count_of

_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~])")


def evidence(report: Report, answers: Sequence[SizeAnswer]) -> str:
    """The Markdown text."""
    first, second = opening(report, answers)
    parts = [
        f"# {_md(report.title)}",
        _md(f"{report.model} on {report.host}; {_tiers(report)}" + _when(report)),
        _md(first),
        _md(second),
        "## Decision per size",
        *(_answer(answer) for answer in answers),
        "## Cells",
        _table(cells.cells(report)),
        _md(cells.CELLS_NOTE),
        _readings(report),
        "## Speed-up between sizes",
        _table(speedup.table(report)),
        _md(speedup.NOTE),
        "## Same result",
        _md(outputs.reading(report)),
        _table(outputs.table(report)),
        _md(outputs.NOTE),
        "## Without a number",
        _table(sessions.not_measured(report)),
        _md(sessions.NOT_MEASURED_NOTE) if sessions.not_measured(report).rows else "",
        *_left_out(report),
        "## Smoke",
        _table(host.smokes(report)),
        _md(host.SMOKES_NOTE),
        "## Where the step goes",
        *(_breakdown(measured) for measured in report.measured),
        "## Gates",
        _md(analysis.GATES_NOTE),
        *(_gates(measured) for measured in report.measured),
        *_conditions(report),
        "## Contracts",
        _table(contracts.own_facts(report)),
        _table(contracts.shared_facts(report)),
        "### History",
        _table(contracts.history(report)),
        "## Sessions",
        _table(sessions.sessions(report)),
        _table(sessions.circumstances(report)),
        "## Host",
        _table(host.cards(report)),
        _table(host.rejected_groups(report)),
        _table(host.versions(report)),
        *_reruns(report),
        "## Commands",
        *(
            _command(f"{contract}, {session.form}, window {session.window}", command_line(session))
            for contract, session in sessions.commands(report)
        ),
        *_problems(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _readings(report: Report) -> str:
    """The sentence of every figure of the cells."""
    sentences = (
        *(captions.of_step_times(report, measured) for measured in report.measured),
        captions.of_ratios(report),
        captions.of_dispersions(report),
        captions.of_drifts(report),
    )
    return "\n".join(f"- {_md(text)}" for text in sentences)


def _tiers(report: Report) -> str:
    return ", ".join(f"{tier} {steps} steps" for tier, steps in report.tiers.items())


def _when(report: Report) -> str:
    return f"; measured until {report.measured_at}" if report.measured_at else ""


def _answer(answer: SizeAnswer) -> str:
    lines = [f"- **{count_of(answer.size)}: {_md(answer.headline)}**, {_md(answer.detail)}"]
    lines += [f"  - {_md(text)}" for text in (answer.trust, answer.basis) if text]
    lines += [f"  - warning: {_md(text)}" for text in answer.warnings]
    lines += [f"  - would change it: {_md(text)}" for text in answer.changes]
    lines += [f"  - condition: {_md(text)}" for text in answer.conditions]
    lines += [f"  - unknown: {_md(text)}" for text in answer.unknowns]
    return "\n".join(lines)


def _breakdown(measured: Measured) -> str:
    head = f"### {count_of(measured.contract.size)}, {_md(measured.contract.id)} v{measured.contract.version}"
    if not analysed(measured):
        return f"{head}\n\nAttribution is missing: {_md(why_not_analysed(measured))}."
    sentences = (
        captions.of_step_parts(measured),
        captions.of_differences(measured),
        captions.of_masking(measured),
        captions.of_layers(measured),
        captions.of_collectives(measured),
    )
    listed = "\n".join(f"- {_md(text)}" for text in sentences)
    return "\n\n".join((head, listed, _table(analysis.collectives(measured)), _table(analysis.proofs(measured))))


def _gates(measured: Measured) -> str:
    head = f"### {count_of(measured.contract.size)}, {_md(measured.contract.id)} v{measured.contract.version}"
    gates = measured.gates.value
    if gates is None:
        return f"{head}\n\nGates are missing: {_md(measured.gates.missing)}."
    extra = [f"- unexplained: {_md(text)}" for text in (one.text for one in gates.unexplained)]
    told = {gate.text for gate in gates.gates}
    extra += [f"- {_md(text)}" for text in (one.text for one in gates.projections) if text not in told]
    return "\n\n".join(part for part in (head, _table(analysis.gate_details(measured)), "\n".join(extra)) if part)


def _conditions(report: Report) -> list[str]:
    decision = report.decision.value
    if decision is None:
        return ["## Conditions", f"Conditions are missing: {_md(report.decision.missing)}."]
    told = {
        text
        for measured in report.measured
        if (gates := measured.gates.value)
        for text in (*(one.text for one in gates.gates), *(one.text for one in gates.projections))
    }
    listed = [
        f"- {count_of(one.size)}: {_md(text)}"
        for one in decision.sizes.values()
        for text in one.reversal
        if text not in told
    ]
    listed += [f"- scaling: {_md(text)}" for text in (one.text for one in decision.scaling)]
    return ["## When to verify again", _table(analysis.triggers(report)), "\n".join(listed)]


def _left_out(report: Report) -> list[str]:
    found = sessions.left_out(report)
    return ["## Left out on purpose", _table(found)] if found.rows else []


def _reruns(report: Report) -> list[str]:
    return ["## Cells measured again", _table(cells.reruns(report))] if report.reruns else []


def _problems(report: Report) -> list[str]:
    return ["## Unreadable files", _table(cells.problems(report))] if report.problems else []


def _command(session: str, line: str) -> str:
    return f"{_md(session)}\n\n    {line.replace(chr(10), ' ')}"


def _table(table: Table) -> str:
    if not table.rows:
        return _md(table.empty)
    lines = [
        "| " + " | ".join(_md(name) for name in table.columns) + " |",
        "|" + "|".join("---:" if name in table.numeric else "---" for name in table.columns) + "|",
    ]
    lines += ["| " + " | ".join(_md(value) for value in row) + " |" for row in table.rows]
    return "\n".join(lines)


def _md(text: str) -> str:
    """Text from outside as Markdown that shows exactly this text: no markup, no HTML, one line."""
    escaped = _SPECIAL.sub(r"\\\1", clean_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return escaped.replace("://", ":&#47;/").replace("\n", "<br>")
