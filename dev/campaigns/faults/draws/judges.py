"""What must hold of a draw, each judged from files and processes alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from campaigns.faults.draws.figures import Figures, differences, figures_of
from campaigns.faults.judging import Judgement
from campaigns.faults.project import Project

SAME, OTHER, MARKED = "same", "other group", "marked"
_TRACE = b"Traceback (most recent call last)"
_TERMINAL = re.compile(rb"\x1b(?!\[[0-9;]*m)|[\x00-\x06\x07\x08\x0b\x0c\x0e-\x1a\x7f]")
_OF_THE_SERVER = ("server.log", "session.json", "smoke.json")  # hold what the server itself printed
_TOLD = ("run-*.txt", "results/logs/**/*", "results/matrix_report/*.*", "results/nightly/*.*", ".snakemake/log/*")
_ERROR = re.compile(
    r"^\s*(?:(?:[\w.-]+\.py|snakemake): .+|(?:WorkflowError|OSError|\w*Error)\b.*|.*Error in file .+)$", re.MULTILINE
)
_SHOWN = 3


def judge_ended(code: int | None, text: str, killed: bool) -> Judgement:
    """A run ended in bounded time: well, by the signal that was sent, or with an error that says so."""
    if code is None:
        return Judgement(False, "did not end")
    if code == 0 or killed:
        return Judgement(True, "ended" if code == 0 else "killed")
    found = _ERROR.search(text)
    return Judgement(found is not None, "error said" if found else f"exit {code} without a word")


def judge_words(folder: Path) -> Judgement:
    """No traceback in any output and any log of the project, and nothing that a terminal would obey but colours."""
    wrong = []
    for path in _told(folder):
        content = path.read_bytes()
        if _TRACE in content and path.name not in _OF_THE_SERVER:
            wrong.append(f"a traceback in {path.relative_to(folder)}")
        if path.suffix in (".txt", ".log") and (found := _TERMINAL.search(content)):
            wrong.append(f"{found[0]!r} in {path.relative_to(folder)}")
    return _of(wrong, "plain")


def judge_secret(folder: Path, secret: str, known: Collection[str]) -> Judgement:
    """A secret of the configuration is in no file of the folder but those ``known`` (names) to hold it."""
    word = secret.encode()
    holders = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name not in known and word in path.read_bytes()
    ]
    return _of([f"the secret is in {holder}" for holder in holders], "kept")


def judge_left(project: Project) -> Judgement:
    """No process of the project, no server on its host and no lease is left."""
    left = project.left_running()
    return Judgement(not left, left or "none")


def judge_figures(project: Project, wanted: Figures, compared: Callable[[str], bool] = lambda place: True) -> Judgement:
    """Every figure of every output is the undisturbed one, and none is missing or too much.

    ``compared`` says of a place whether it is looked at.
    """
    found = {place: figure for place, figure in figures_of(project.results).items() if compared(place)}
    wrong = differences(found, {place: figure for place, figure in wanted.items() if compared(place)})
    return _of(wrong, f"{len(found)} right")


def judge_report(summary: Mapping[str, Any] | None, references: Iterable[Mapping[str, Any]]) -> Judgement:
    """No usable cell and no winner of a report, the one during the fault included, is another than undisturbed."""
    known: dict[tuple[str, ...], Any] = {}
    winners: dict[str, str | None] = {}
    for reference in references:
        known |= {_place(cell): cell["step_s"] for cell in reference["cells"]}
        winners |= {verdict["contract"]: verdict["winner"] for verdict in reference["verdicts"]}
    wrong = [
        f"{' '.join(_place(cell))} is {cell['step_s']} s, not {known.get(_place(cell))}"
        for cell in (summary or {}).get("cells", ())
        if cell["usable"] and cell["window"] != "all" and cell["step_s"] != known.get(_place(cell))
    ]
    wrong += [
        f"{verdict['contract']} is won by {verdict['winner']}, not {winners.get(verdict['contract'])}"
        for verdict in (summary or {}).get("verdicts", ())
        if verdict["winner"] not in (None, winners.get(verdict["contract"]))
    ]
    return _of(wrong, "right")


def judge_same_tree(before: Mapping[str, str], after: Mapping[str, str]) -> Judgement:
    """Nothing was made, changed or removed."""
    changed = [
        f"{name} is {'gone' if name not in after else 'changed'}" for name in before if after.get(name) != before[name]
    ]
    return _of(changed + [f"{name} is new" for name in after if name not in before], "unchanged")


def tree(folder: Path) -> dict[str, str]:
    """What lies below a folder: of every file its time and content, of every folder that it is there.

    The memory that readers of a database share, and the empty journal they open, are no content.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.endswith("-shm") or (name.endswith("-wal") and path.stat().st_size == 0):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            found[name] = "folder"
    return found


def _told(folder: Path) -> Iterable[Path]:
    for pattern in _TOLD:
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())


def _of(wrong: list[str], right: str) -> Judgement:
    more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return Judgement(not wrong, "; ".join(wrong[:_SHOWN]) + more if wrong else right)


def _place(cell: Mapping[str, Any]) -> tuple[str, ...]:
    return cell["contract"], cell["form"], cell["tier"], cell["window"]
