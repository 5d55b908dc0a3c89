"""The report as one page: no scripts, nothing loaded from elsewhere, everything from outside escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from anchormatrix.records.session import Session
from anchormatrix.report import captions
from anchormatrix.report.answer import SizeAnswer
from anchormatrix.report.captured_steps import analysed, why_not_analysed
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.opening import opening
from anchormatrix.report.plots.figures import Figure
from anchormatrix.report.plots.palette import theme_css
from anchormatrix.report.source import clean_text
from anchormatrix.report.tables import analysis, cells, contracts, host, outputs, sessions, speedup
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import count_of, minute

_FORM = re.compile(r"\btp\d+-usp\d+[\w+-]*")
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|(?:s|ms|cards?|steps|windows)\b))|(?<=\br) (?==)|(?<=\br =) ")
_TEMPLATES = Path(__file__).parent / "templates"
_OF_THE_STEP = ("step-parts", "step-differences", "masking-bound", "layer-timeline")
_SECRETS = ("token", "secret", "password", "passwd", "api_key", "apikey", "credential")


def page(report: Report, answers: Sequence[SizeAnswer], figures: Mapping[str, Figure]) -> str:
    """The page as text."""
    return rendered(
        "report.html.j2",
        report=report,
        answers=answers,
        opening=opening(report, answers),
        figures=figures,
        tables=_tables(report),
        attribution={m.contract.id: _attribution(m, i, figures) for i, m in enumerate(report.measured)},
        gates={measured.contract.id: _gates(report, measured) for measured in report.measured},
        gates_note=analysis.GATES_NOTE,
        smokes_note=host.SMOKES_NOTE,
        not_measured_note=sessions.NOT_MEASURED_NOTE,
        cells_note=cells.CELLS_NOTE,
        outputs_note=outputs.NOTE,
        outputs_reading=outputs.reading(report),
        speedups_note=speedup.NOTE,
        commands=[(contract, session, command_line(session)) for contract, session in sessions.commands(report)],
        cell_count=cells.pooled_count(report),
    )


def rendered(template: str, **values: Any) -> str:
    """A template of this package as text, with the style and colours that all pages share."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["picture"] = Markup  # only for text that this package made and escaped itself
    environment.filters["unbroken"] = unbroken
    environment.filters["minute"] = minute
    environment.filters["cards"] = count_of
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(theme=theme_css(), style=style, **values)


def _harmless(value: Any) -> Any:
    """Whatever a template shows: text that came from outside as text that can be shown."""
    return clean_text(value) if type(value) is str else value


def unbroken(words: str) -> Markup:
    """Escaped text in which the names of forms, and figures and their units, are not broken over lines."""
    text = _FORM.sub(r'<span class="form">\g<0></span>', str(escape(clean_text(words))))
    return Markup(_FIGURE.sub("\N{NO-BREAK SPACE}", text))


def command_line(session: Session) -> str:
    """A session's command as one could paste it into a shell; values of variables that look secret are left out."""
    pairs = [
        f"{name}={'…' if any(word in name.lower() for word in _SECRETS) else shlex.quote(value)}"
        for name, value in session.env.items()
    ]
    line = " ".join([*pairs, shlex.join(session.command)]) if session.command else "the command was not recorded"
    return clean_text(line)


def _tables(report: Report) -> dict[str, Table]:
    return {
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
    }


def _attribution(measured: Measured, index: int, figures: Mapping[str, Figure]) -> dict[str, Any]:
    found = analysed(measured)
    return {
        "forms": list(found),
        "pictures": [figures[name].parts[index] for name in _OF_THE_STEP],
        "collectives": analysis.collectives(measured),
        "collectives_reading": captions.of_collectives(measured),
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
