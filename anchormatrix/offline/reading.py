"""Serving logs without a device: the same requests, cells and verdict from logs that already exist.

A log is named ``NAME_serve.log``; NAME is a form (``tp1-usp4``) or any label, and may end in ``_w2`` for the second
window. Forms are compared only with forms on as many ranks.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from anchormatrix.decide.cells import build_cells
from anchormatrix.decide.verdict import judge
from anchormatrix.engines.base import Engine
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.timing import Request, ServeLog, closure_pct
from anchormatrix.errors import ConfigError, InputError
from anchormatrix.measure.causes import failure_of
from anchormatrix.measure.proof import prove
from anchormatrix.measure.ramp import judge_ramp
from anchormatrix.offline.logfile import log_text, no_serving_log
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.configured import matrix_design
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import plain
from anchormatrix.store.sessions import TimedSession

_SUFFIX = "_serve.log"
_WINDOW = re.compile(r"^(.+)_w(\d{1,3})$", re.ASCII)


@dataclass(frozen=True)
class ReadLog:
    """One log file: the form or label and window of its name, what it holds, and the session it amounts to. ``alien``
    says what it is when it is no serving log."""

    path: Path
    log: ServeLog
    first_steady: int | None
    timed: TimedSession
    alien: str = ""

    @property
    def session(self) -> Session:
        """The session's record."""
        return self.timed.session


@dataclass(frozen=True)
class Reading:
    """All logs of a folder with the cells and verdicts that follow, one verdict per number of ranks."""

    logs: tuple[ReadLog, ...]
    cells: tuple[Cell, ...]
    verdicts: tuple[Verdict, ...]

    def summary(self) -> dict[str, Any]:
        """In the shape of the matrix report's summary; a contract is the number of ranks, its cards are not known."""
        sizes = {verdict.contract: verdict.size for verdict in self.verdicts}
        return {
            "contracts": [{"id": name, "size": size, "cards": [], "version": 1} for name, size in sizes.items()],
            "cells": [
                {
                    "contract": cell.contract,
                    "form": cell.form,
                    "tier": cell.tier,
                    "window": cell.window,
                    "repeats": len(cell.values_s),
                    "step_s": cell.step_s,
                    "dispersion_pct": cell.dispersion_pct,
                    "usable": cell.usable,
                    "reason": cell.reason,
                    "values_s": list(cell.values_s),
                }
                for cell in self.cells
            ],
            "verdicts": [_flat(verdict) for verdict in self.verdicts],
            "logs": [_log_summary(item) for item in self.logs],
        }


def read_logs(folder: Path, tiers: Mapping[str, int], settings: Settings) -> Reading:
    """Read every ``*_serve.log`` of a folder. Raises :class:`InputError` when there is none."""
    paths = sorted(folder.glob(f"*{_SUFFIX}"))
    if not paths:
        raise InputError(f"no *{_SUFFIX} here", where=str(folder), expected="one serving log per form")
    engine = open_engine(settings)
    logs = tuple(_read(path, tiers, settings, engine) for path in paths)
    if all(item.alien for item in logs):
        raise InputError(
            f"{paths[0].name}: {logs[0].alien}" + (f" (and {len(logs) - 1} more)" if len(logs) > 1 else ""),
            where=str(folder),
            expected="logs of vllm-omni's server with its diffusion pipeline profiler on",
        )
    cells = build_cells(
        [item.timed for item in logs],
        repeats=settings.matrix.repeats,
        dispersion_pct=settings.verdict.dispersion_pct,
    )
    verdicts = []
    for contract in dict.fromkeys(item.session.contract for item in logs):
        sessions = [item.timed for item in logs if item.session.contract == contract]
        verdicts.append(
            judge(
                contract,
                int(contract.rpartition("-")[2]),
                [cell for cell in cells if cell.contract == contract],
                sessions,
                forms=list(dict.fromkeys(timed.session.form for timed in sessions)),
                design=_design(sessions, settings),
                limits=settings.verdict,
            )
        )
    return Reading(logs, cells, tuple(verdicts))


def _design(sessions: Sequence[TimedSession], settings: Settings) -> MatrixDesign:
    """All windows that there are logs of, looked at together."""
    windows, design = max(timed.session.window for timed in sessions), matrix_design(settings)
    rule = dataclasses.replace(design.rule, first_window=windows, most_windows=windows, far_pct=None)
    return dataclasses.replace(design, windows=windows, adaptive=False, rule=rule)


def _read(path: Path, tiers: Mapping[str, int], settings: Settings, engine: Engine) -> ReadLog:
    text, replaced = log_text(path)
    label, window = path.name.removesuffix(_SUFFIX), 1
    if match := _WINDOW.match(label):
        label, window = match[1], max(1, int(match[2]))
    log = engine.read(text)
    if replaced:
        log = dataclasses.replace(log, findings=(*log.findings, f"{replaced} characters are no UTF-8: replaced"))
    form = _form(label)
    timed = [request for request in log.requests if request.step_s is not None and not request.profiled]
    steps = [request.steps for request in timed]
    warmups, limits = _warm_ups(steps, tiers, settings.matrix.repeats), settings.matrix.warmups
    ramp = judge_ramp(
        [request.step_s or 0.0 for request in timed],
        steps,
        warmups=warmups,
        longest=max(warmups, limits.min),
        steady_pct=limits.steady_pct,
    )
    repeats = timed[max(1, warmups, (ramp.first_steady or 1) - 1) :]
    alien = no_serving_log(text, log, engine.name)
    status, reason = _status(
        text,
        log,
        alien,
        engine.expected_groups(form) if form else None,
        [r for r in repeats if r.steps in tiers.values()],
    )
    session = Session(
        contract=f"ranks-{form.cards if form else max(1, len(log.ranks))}",
        form=form.name if form else label,
        window=window,
        status=status,
        reason=reason,
        evidence=(),
        command=(),
        env={},
        ramp=replace(ramp, requests=len(timed) - len(repeats)),
        tries=(),
        generation=0,
        night="",
    )
    names = {steps: tier for tier, steps in tiers.items()}
    rows = tuple(_row(request, names[request.steps]) for request in repeats if request.steps in names)
    steady = timed[ramp.first_steady - 1].index if ramp.first_steady else None
    return ReadLog(path, log, steady, TimedSession(session, rows), alien)


def _warm_ups(steps: Sequence[int], tiers: Mapping[str, int], repeats: int) -> int:
    """How many requests at the head only warmed the server up: those before the first pair of few and anchor.

    Where too few repeats would be left of a tier, the log was not sent in pairs and nothing tells its warm-ups.
    """
    first = steps.index(tiers[ANCHOR]) if tiers[ANCHOR] in steps else 0
    head = first - 1 if first and steps[first - 1] == tiers[FEW] else first
    return head if all(steps[head:].count(count) >= repeats for count in tiers.values()) else 0


def _row(request: Request, tier: str) -> RequestRow:
    """A repeat as a row of a session's requests; nobody saw it being sent."""
    return RequestRow(
        request=request.index + 1,
        role=Role.MEASURED,
        tier=tier,
        steps=request.steps,
        iterations=request.iterations,
        denominator=request.denominator,
        step_s=request.step_s,
        ranks=len(request.ranks),
        status=RequestStatus.OK,
        latency_s=0.0,
        sent_s=0.0,
    )


def _status(
    text: str, log: ServeLog, alien: str, expected: Mapping[str, int] | None, repeats: Sequence[Request]
) -> tuple[SessionStatus, str]:
    if alien:
        return SessionStatus.UNMEASURABLE, alien
    if not log.requests:
        why = "; ".join((failure_of(text).words, *log.findings, *log.remarks))
        return SessionStatus.DID_NOT_RUN, f"the log holds no request: {why}"
    if log.untimed:
        return SessionStatus.UNMEASURABLE, log.untimed
    proof = prove(log, expected) if expected else None
    if proof and not proof.ok:
        return SessionStatus.VOID, f"the form did not take effect: {'; '.join(proof.failures)}"
    if not repeats:
        return SessionStatus.UNMEASURABLE, "no whole request of either tier after the first"
    return SessionStatus.MEASURED, ""


def _form(label: str) -> Form | None:
    try:
        return parse_form(label)
    except ConfigError:
        return None


def _flat(verdict: Verdict) -> dict[str, Any]:
    values = plain(verdict)
    del values["schema"]
    for key in ("order_few", "order_anchor"):
        values[key] = [form for group in values[key] for form in group]
    return values


def _log_summary(item: ReadLog) -> dict[str, Any]:
    log = item.log
    return {
        "file": item.path.name,
        "form": item.session.form,
        "window": item.session.window,
        "status": item.session.status,
        "reason": item.session.reason,
        "ranks": len(log.ranks),
        "groups": {name: list(sizes) for name, sizes in log.groups.items()},
        "requests": len(log.requests),
        "first_steady": None if item.first_steady is None else item.first_steady + 1,
        "lines": log.lines,
        "unusable_lines": log.unusable_lines,
        "unusable": dict(log.spoiled),
        "stage_lines": log.stage_lines,
        "bars": log.bars,
        "findings": [*log.findings, *log.remarks],
        "refused": [
            {
                "request": request.index + 1,
                "why": request.refused,
                "bar_step_s": request.bar_step_s and request.bar_step_s[0],
            }
            for request in log.requests
            if request.refused
        ],
        "lost_responses": log.lost_responses,
        "denominators": log.denominators,
        "closure_pct": closure_pct(log.requests),
    }
