"""The report's files, made from result files."""

from __future__ import annotations

from pathlib import Path

from anchormatrix.records.plan import RunPlan
from anchormatrix.records.settings.whole import Settings
from anchormatrix.report.answer import size_answers
from anchormatrix.report.evidence import evidence
from anchormatrix.report.facts import facts
from anchormatrix.report.html import rendered
from anchormatrix.report.load import load_report
from anchormatrix.report.model import Report
from anchormatrix.report.plots.figures import fonts_kept_in, write_figures
from anchormatrix.report.source import clean
from anchormatrix.report.summary import CELL_COLUMNS, cell_rows, summary
from anchormatrix.store.files import write_csv, write_json, write_text


def build_report(settings: Settings, results: Path, out: Path, plan: RunPlan | None = None) -> Report:
    """Read ``results`` and write ``index.html``, ``summary.json``, ``cells.csv``, ``evidence.md`` and ``figures/``.

    Missing and unusable result files are told in the report; only a file that cannot be written raises (``OSError``).
    """
    report = load_report(settings, results, out, plan)
    answers = size_answers(report)
    with fonts_kept_in(results / ".run" / "matplotlib"):
        figures = write_figures(report, out / "figures")
    write_csv(out / "cells.csv", CELL_COLUMNS, clean(cell_rows(report)))
    write_json(out / "summary.json", clean(summary(report, answers)))
    shown = facts(report, answers, figures)
    write_text(out / "evidence.md", evidence(shown))
    write_text(out / "index.html", rendered("report.html.j2", **shown))
    return report
