"""The judgement after a fault, from files and processes: what must hold, each as a word and whether it is right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.faults.project import Project

SAME_WITHIN = 0.01  # the noise floor of a pair
_TRACE = "Traceback (most recent call last)"
_ERROR = re.compile(
    r"^\s*(?:(?:[\w.-]+\.py|snakemake): .+|(?:WorkflowError|OSError|ConfigError)\b.*|.*Error in file .+)$", re.MULTILINE
)
_EXPLAINED = ("did_not_run", "void", "contaminated", "unmeasurable")
Number = tuple[str, str, str, str]  # contract, form, tier, window


@dataclass(frozen=True)
class Judgement:
    """One cell of the campaign's table."""

    right: bool
    text: str


@dataclass(frozen=True)
class Undisturbed:
    """What an undisturbed run of one card group reports: usable step times in seconds, and verdict and winner."""

    numbers: Mapping[Number, float]
    verdicts: Mapping[str, tuple[str, str | None]]


def undisturbed_from(summary: Mapping[str, Any]) -> Undisturbed:
    """Take the numbers and verdicts of a ``summary.json``."""
    return Undisturbed(
        {_number(cell): cell["step_s"] for cell in summary["cells"] if cell["usable"]},
        {verdict["contract"]: (verdict["status"], verdict["winner"]) for verdict in summary["verdicts"]},
    )


def judge_end(code: int | None, text: str, project: Project, killed: bool) -> Judgement:
    """The first run ended in bounded time, with a report or with one clear error."""
    if code is None:
        return Judgement(False, "did not end")
    logs = [path.read_text(encoding="utf-8", errors="replace") for path in project.results.glob("logs/*.log")]
    if _TRACE in text or any(_TRACE in log for log in logs):
        return Judgement(False, "a traceback")
    if code == 0:
        return Judgement(project.summary() is not None, "report")
    if killed:
        return Judgement(True, "killed" if code < 0 else f"stopped, {code}")
    found = _ERROR.search(text)
    return Judgement(found is not None, "error said" if found else f"exit {code} without a word")


def judge_kept(before: Mapping[str, bytes], after: Mapping[str, bytes], spoiled: set[str]) -> Judgement:
    """Every session that was measured before still is, byte for byte."""
    expected = {path for path in before if path not in spoiled}
    lost = sorted(path for path in expected if after.get(path) != before[path])
    return Judgement(not lost, f"lost {', '.join(lost)}" if lost else f"{len(expected)}")


def judge_numbers(summaries: list[dict[str, Any] | None], references: Mapping[str, Undisturbed]) -> Judgement:
    """No usable number differs from what the undisturbed run of the same group found."""
    truth = {number: step_s for reference in references.values() for number, step_s in reference.numbers.items()}
    wrong, usable = [], 0
    for summary in summaries:
        for cell in summary["cells"] if summary else ():
            if cell["usable"]:
                usable += 1
                right = truth.get(_number(cell))
                if right is None or abs(cell["step_s"] / right - 1) > SAME_WITHIN:
                    wrong.append(f"{cell['form']} {cell['tier']} w{cell['window']} {cell['step_s']:.4g} s, not {right}")
    return Judgement(not wrong, "; ".join(wrong) or f"{usable} right")


def judge_report(project: Project, code: int | None, wanted: str, references: Mapping[str, Undisturbed]) -> Judgement:
    """The next run ended well and its report is that of an undisturbed run, or marks and explains what is missing.

    ``wanted`` is ``same``, ``other group``, ``marked`` or ``stands``.
    """
    if code != 0:
        return Judgement(False, f"exit {code}")
    summary = project.summary()
    if summary is None:
        return Judgement(False, "no report")
    found = undisturbed_from(summary)
    for name, reference in references.items():
        if set(found.numbers) == set(reference.numbers) and found.verdicts == reference.verdicts:
            return Judgement(wanted == name, name if wanted == name else f"{name}, expected {wanted}")
    unsaid = _unexplained(project, found, references)
    if unsaid:
        return Judgement(False, f"not explained: {unsaid}")
    return Judgement(wanted in ("marked", "stands"), "marked" if wanted == "marked" else _verdict_words(found))


def _unexplained(project: Project, found: Undisturbed, references: Mapping[str, Undisturbed]) -> str:
    """A number of the undisturbed run that is missing although its session says nothing of it; empty if none is."""
    for contract in found.verdicts:
        for reference in references.values():
            for number in reference.numbers:
                of, form, _, window = number
                if of != contract or number in found.numbers or window == "all":
                    continue
                path = project.results / contract / form / f"w{window}" / "session.json"
                if not _says_why(path) and not _cell_says_why(project, number):
                    return " ".join(number)
    return ""


def _says_why(path: Path) -> bool:
    try:
        session = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return session.get("status") in _EXPLAINED and bool(session.get("reason"))


def _cell_says_why(project: Project, number: Number) -> bool:
    summary = project.summary() or {"cells": []}
    return any(_number(cell) == number and not cell["usable"] and cell["reason"] for cell in summary["cells"])


def _verdict_words(found: Undisturbed) -> str:
    return "says " + ", ".join(sorted({status for status, _ in found.verdicts.values()}))


def _number(cell: Mapping[str, Any]) -> Number:
    return cell["contract"], cell["form"], cell["tier"], cell["window"]
