"""The report for programs: ``summary.json`` and ``cells.csv``. Only current contracts have numbers in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anchormatrix.planning.groups import show
from anchormatrix.records.cells import Cell
from anchormatrix.records.verdict import VerdictStatus
from anchormatrix.report.answer import SizeAnswer
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.tables import outputs, speedup

CELL_COLUMNS = (
    "contract", "form", "tier", "window", "repeats", "step_s", "dispersion_pct", "usable", "reason", "values_s", "note",
)  # fmt: skip


def summary(report: Report, answers: Sequence[SizeAnswer]) -> dict[str, Any]:
    """The content of ``summary.json``: contracts, cells and verdicts, then what was decided and what is missing."""
    return {
        "contracts": [_contract(measured) for measured in report.measured],
        "cells": [_cell(cell) for measured in report.measured for cell in measured.cells.value or ()],
        "verdicts": [_verdict(report, measured) for measured in report.measured if measured.verdict.value],
        "answers": [
            {
                "size": answer.size,
                "contract": answer.measured.contract.id if answer.measured else None,
                "outcome": answer.outcome,
                "headline": answer.headline,
                "detail": answer.detail,
                "few_step_ranking_trusted": answer.trusted,
            }
            for answer in answers
        ],
        "rejected_contracts": [
            {
                "id": measured.contract.id,
                "size": measured.contract.size,
                "reason": report.why_no_group(measured.contract.size),
            }
            for measured in report.rejected
        ],
        "retired_contracts": [
            {"id": entry.id, "size": entry.size, "version": entry.version, "cards": list(entry.cards)}
            for entry in report.retired
        ],
        "outputs": outputs.as_dicts(report),
        "speedups": speedup.as_dicts(report),
        "problems": [{"file": problem.file, "text": problem.text} for problem in report.problems],
    }


def cell_rows(report: Report) -> list[dict[str, Any]]:
    """The rows of ``cells.csv``."""
    return [
        {
            **_cell(cell),
            "usable": str(cell.usable).lower(),
            "note": report.note(measured),
            "values_s": ";".join(f"{value:.9g}" for value in cell.values_s),
        }
        for measured in report.measured
        for cell in measured.cells.value or ()
    ]


def _contract(measured: Measured) -> dict[str, Any]:
    contract = measured.contract
    return {
        "id": contract.id,
        "size": contract.size,
        "cards": list(contract.cards),
        "version": contract.version,
        "link_class": contract.link_class,
        "one_domain": contract.one_domain,
        "smoke": measured.smoke.value.status if measured.smoke.value else None,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "contract": cell.contract,
        "form": cell.form,
        "tier": cell.tier,
        "window": cell.window,
        "repeats": cell.repeats,
        "step_s": cell.step_s,
        "dispersion_pct": cell.dispersion_pct,
        "usable": cell.usable,
        "reason": cell.reason,
    }


def _verdict(report: Report, measured: Measured) -> dict[str, Any]:
    verdict = measured.verdict.value
    if verdict is None:
        return {}
    if damaged := report.damaged(measured):  # nothing that damaged cards measured decides anything
        why = f"holds cards {show(damaged)}, which are in the residue state"
        verdict = msgspec.structs.replace(
            verdict,
            status=VerdictStatus.INCOMPLETE,
            reason=why,
            winner=None,
            margin_pct=None,
            tied_with=(),
            missing=(*verdict.missing, f"a group without damage: this one {why}"),
            cure="reset the driver or use another group",
        )
    return {
        "contract": measured.contract.id,
        "size": measured.contract.size,
        "status": verdict.status,
        "reason": verdict.reason,
        "r": dict(verdict.r),
        "order_few": [form for tied in verdict.order_few for form in tied],
        "order_anchor": [form for tied in verdict.order_anchor for form in tied],
        "ties": [[a, b, floor] for a, b, floor in verdict.ties],
        "winner": verdict.winner,
        "tied_with": list(verdict.tied_with),
        "winner_tier": verdict.winner_tier,
        "margin_pct": verdict.margin_pct,
        "did_not_run": [{"form": entry.form, "reason": entry.reason} for entry in verdict.did_not_run],
        "missing": list(verdict.missing),
        "cure": verdict.cure,
    }
