"""What is shown: every table, sentence and picture, under the names by which the templates of page and Markdown ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchormatrix.config.secrets import shell_assignment, shell_word
from anchormatrix.records.session import Session
from anchormatrix.report import captions
from anchormatrix.report.answer import SizeAnswer
from anchormatrix.report.captured_steps import analysed, why_not_analysed
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.opening import opening
from anchormatrix.report.plots.figures import Figure
from anchormatrix.report.source import clean_text
from anchormatrix.report.tables import analysis, cells, contracts, host, outputs, sessions, speedup

_OF_THE_STEP = ("step-parts", "step-differences", "masking-bound", "layer-timeline")


def facts(report: Report, answers: Sequence[SizeAnswer], figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Everything that a template can show of a report."""
    return {
        "report": report,
        "answers": answers,
        "opening": opening(report, answers),
        "figures": figures,
        "tables": {
            "cards": host.cards(report),
            "rejected_groups": host.rejected_groups(report),
            "not_measured": sessions.not_measured(report),
            "left_out": sessions.left_out(report),
            "smokes": host.smokes(report),
            "own_facts": contracts.own_facts(report),
            "shared_facts": contracts.shared_facts(report),
            "history": contracts.history(report),
            "cells": cells.cells(report),
            "outputs": outputs.table(report),
            "speedups": speedup.table(report),
            "sessions": sessions.sessions(report),
            "circumstances": sessions.circumstances(report),
            "versions": host.versions(report),
            "triggers": analysis.triggers(report),
            "reruns": cells.reruns(report),
            "problems": cells.problems(report),
        },
        "attribution": {m.contract.id: _attribution(m, i, figures) for i, m in enumerate(report.measured)},
        "gates": {measured.contract.id: _gates(report, measured) for measured in report.measured},
        "gates_note": analysis.GATES_NOTE,
        "smokes_note": host.SMOKES_NOTE,
        "not_measured_note": sessions.NOT_MEASURED_NOTE,
        "cells_note": cells.CELLS_NOTE,
        "outputs_note": outputs.NOTE,
        "outputs_reading": outputs.reading(report),
        "speedups_note": speedup.NOTE,
        "commands": [(contract, session, _command_line(session)) for contract, session in sessions.commands(report)],
        "cell_count": cells.pooled_count(report),
    }


def _attribution(measured: Measured, index: int, figures: Mapping[str, Figure]) -> dict[str, Any]:
    found = analysed(measured)
    pictures = [figures[name].parts[index] for name in _OF_THE_STEP]
    collectives_reading = captions.of_collectives(measured)
    return {
        "forms": list(found),
        "pictures": pictures,
        "collectives": analysis.collectives(measured),
        "collectives_reading": collectives_reading,
        "readings": [*(reading for _, reading in pictures), collectives_reading],
        "proofs": analysis.proofs(measured),
        "not_analysed": why_not_analysed(measured) if len(found) < len(measured.attributions) or not found else "",
    }


def _gates(report: Report, measured: Measured) -> dict[str, Any]:
    choice = report.decided(measured)
    told = choice.reversal if choice else ()
    return {
        "projections": [
            one.text
            for one in (measured.gates.value.projections if measured.gates.value else ())
            if one.text not in told
        ],
        "matrix": analysis.gate_matrix(measured),
        "details": analysis.gate_details(measured),
        "bandwidth": analysis.bandwidth(measured),
    }


def _command_line(session: Session) -> str:
    """A session's command as one could paste it into a shell, which fills in the secrets from its own variables."""
    words = [shell_assignment(name, value) for name, value in session.env.items()]
    words += map(shell_word, session.command)
    line = " ".join(words) if session.command else "the command was not recorded"
    return clean_text(line)
