"""The report for programs: ``summary.json`` and ``cells.csv``. Only current contracts have numbers in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anchormatrix.planning.groups import show
from anchormatrix.records.conclusions.verdict import VerdictStatus
from anchormatrix.report.answer import SizeAnswer
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.tables import outputs, speedup

_CONTRACT = ("id", "size", "cards", "version", "link_class", "one_domain")
_CELL = ("contract", "form", "tier", "window", "repeats", "step_s", "dispersion_pct", "usable", "reason")
_VERDICT = (
    *("status", "reason", "r", "ties", "winner", "tied_with", "winner_tier", "margin_pct"),
    *("did_not_run", "missing", "cure"),
)
CELL_COLUMNS = (*_CELL, "values_s", "note")


def summary(report: Report, answers: Sequence[SizeAnswer]) -> dict[str, Any]:
    """The content of ``summary.json``: contracts, cells and verdicts, then what was decided and what is missing."""
    return {
        "contracts": [_contract(measured) for measured in report.measured],
        "cells": [_values(cell, _CELL) for measured in report.measured for cell in measured.cells.value or ()],
        "verdicts": [_verdict(report, measured) for measured in report.measured if measured.verdict.value],
        "answers": [_answer(answer) for answer in answers],
        "rejected_contracts": [
            _values(measured.contract, ("id", "size")) | {"reason": report.why_no_group(measured.contract.size)}
            for measured in report.rejected
        ],
        "retired_contracts": [_values(entry, ("id", "size", "version", "cards")) for entry in report.retired],
        "outputs": [_output(row) for row in outputs.outputs(report)],
        "speedups": [_speedup(row) for row in speedup.gains(report)],
        "problems": [_values(problem, ("file", "text")) for problem in report.problems],
    }


def cell_rows(report: Report) -> list[dict[str, Any]]:
    """The rows of ``cells.csv``."""
    return [
        {
            **_values(cell, _CELL),
            "usable": str(cell.usable).lower(),
            "note": report.note(measured),
            "values_s": ";".join(f"{value:.9g}" for value in cell.values_s),
        }
        for measured in report.measured
        for cell in measured.cells.value or ()
    ]


def _values(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Some of the fields of a record under their own names, as plain values."""
    return {name: msgspec.to_builtins(getattr(value, name)) for name in names}


def _contract(measured: Measured) -> dict[str, Any]:
    smoke = measured.smoke.value
    return _values(measured.contract, _CONTRACT) | {"smoke": smoke.status if smoke else None}


def _answer(answer: SizeAnswer) -> dict[str, Any]:
    return {
        "contract": answer.measured.contract.id if answer.measured else None,
        **_values(answer, ("size", "outcome", "headline", "detail")),
        "few_step_ranking_trusted": answer.trusted,
    }


def _output(row: outputs.FormOutput) -> dict[str, Any]:
    return {
        "contract": row.measured.contract.id,
        "size": row.measured.contract.size,
        **_values(row, ("form", "steps", "fingerprints", "requests", "windows", "outcome", "reason")),
        "tier": row.tier or None,
        "reference": row.reference or None,
        "picture": _values(row.picture, ("status", "psnr_db", "text")) if row.picture else None,
        "check": _values(row.check, ("ok", "relative_distance", "limit")) if row.check else None,
    }


def _speedup(row: speedup.Gain) -> dict[str, Any]:
    base_form, base_size = row.base or (None, None)
    return {
        "size": row.measured.contract.size,
        **_values(row.cell, ("contract", "form", "step_s", "repeats", "dispersion_pct")),
        "base_form": base_form,
        "base_size": base_size,
        **_values(row, ("speedup", "efficiency")),
        "usable": row.stable,
        "note": row.why,
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
        "size": measured.contract.size,
        **_values(verdict, _VERDICT),
        "contract": measured.contract.id,
        "order_few": [form for tied in verdict.order_few for form in tied],
        "order_anchor": [form for tied in verdict.order_anchor for form in tied],
    }
