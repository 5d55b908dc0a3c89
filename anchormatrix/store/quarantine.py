"""Result files that are not what was written: set aside, so that the run makes them again.

Files are written whole and sealed, so one of another content was damaged later, by a disk, or edited by a hand. One
rule holds for all of them; a file that was never sealed is believed when it reads well. Its neighbours stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from anchormatrix.errors import InputError, cannot_write
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.bandwidth import SizeSweep
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.conclusions.decision import Decision
from anchormatrix.records.conclusions.gates import Gates
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import ContractList, LedgerEntry, StoredContract
from anchormatrix.records.host import HostHealth, Topology
from anchormatrix.records.outputs import Outputs
from anchormatrix.records.requests import RequestRow
from anchormatrix.records.session import Session
from anchormatrix.records.smoke import Smoke
from anchormatrix.store.codec import file_bytes, parse_record, read_record, read_table
from anchormatrix.store.files import write_bytes
from anchormatrix.store.seals import Seals, files_below, read_seals, seal_of_line, seals_of, write_seals

SUFFIX = ".damaged"
LEDGER = "contracts.jsonl"
_LEDGERS = (LEDGER, "decisions.jsonl")
_OBJECTS: Mapping[str, type[FileRecord]] = {
    "topology.json": Topology,
    "health.json": HostHealth,
    "contracts.json": ContractList,
    "c*-*/contract.json": StoredContract,
    "c*-*/smoke.json": Smoke,
    "c*-*/outputs.json": Outputs,
    "c*-*/verdict.json": Verdict,
    "c*-*/gates.json": Gates,
    "c*-*/*/attribution.json": Attribution,
    "c*-*/*/attribution-anchor.json": Attribution,
    "c*-*/*/w*/session.json": Session,
    "bandwidth/c*-*.json": SizeSweep,
    "matrix_report/decision.json": Decision,
    "matrix_report/summary.json": FileRecord,
    "nightly/summary.json": FileRecord,
}
_TABLES: Mapping[str, type[Record]] = {
    "c*-*/cells.csv": Cell,
    "c*-*/*/w*/requests.csv": RequestRow,
    "matrix_report/cells.csv": Record,
}


_OTHERS = (
    "c*-*/*/w*/server.log",
    "c*-*/*/w*/output.bin",
    "c*-*/*/capture/**",
    "c*-*/*/capture-anchor/**",
    "matrix_report/index.html",
    "matrix_report/evidence.md",
    "matrix_report/figures/*",
    "nightly/index.html",
)
_SESSION_OF = {"capture": "w1", "capture-anchor": "w2"}  # the window whose session makes the capture
_UNSEALED = "suspect.json"  # a mark that cannot be read still counts as one: nothing may take it away
_OTHER = "its content is not what was written: a disk damaged it, or somebody edited it"


@dataclass(frozen=True)
class Damage:
    """A result that is not what was written. ``gone`` names the files and folders that will be missing once it is set
    aside, ``again`` what makes them again."""

    path: Path
    problem: str
    gone: tuple[Path, ...]
    again: str = "made again"

    def words(self, done: str) -> str:
        """A sentence on it, that ends with what is done about it."""
        return f"{self.path} is damaged ({self.problem}): {done}"


def find_damaged(results: Path) -> tuple[Damage, ...]:
    """Every damaged result; nothing is changed.

    A session is damaged as a whole when any of its files is, those of its capture too: its ``session.json`` stands for
    all. Raises :class:`InputError` when a file cannot be looked at.
    """
    with _told(results, "cannot be looked through"):
        problems = _problems(results)
        found: dict[tuple[Path, ...], Damage] = {}
        for name, problem in problems:
            gone = _gone(results, name)
            again = "made again" if _run_makes(name) else "the command that wrote it makes it again"
            again = "made again by the next night" if name.startswith("nightly/") else again
            found.setdefault(gone, Damage(results / name, problem, gone, again))
        return (*found.values(), *_damaged_ledgers(results))


def set_aside(results: Path, found: Sequence[Damage]) -> tuple[str, ...]:
    """Rename what was found damaged to ``NAME.damaged``, and seal what the folder holds now; a sentence for each.

    Of a ledger only the damaged lines go. To be called, also with nothing found, by a run that holds the folder.
    Raises :class:`InputError` when a file cannot be renamed, :class:`WriteError` when nothing can be written.
    """
    for one in found:
        if one.path.name in _LEDGERS:
            _mend_ledger(one.path, read_seals(results))
        for path in one.gone:
            with _told(path, "is damaged and cannot be set aside"):
                aside = path.with_name(path.name + SUFFIX)
                if path.name == "contracts.json" and one.path.name == LEDGER:
                    path.unlink(missing_ok=True)
                elif path.exists():
                    if aside.is_dir():
                        shutil.rmtree(aside)
                    os.replace(path, aside)
    try:
        _seal(results)
    except OSError as error:
        raise cannot_write(error, results) from None
    return tuple(one.words(f"set aside beside it as *{SUFFIX}, {one.again}") for one in found)


def _problems(results: Path) -> list[tuple[str, str]]:
    """What is wrong with which file, by its name below the results folder."""
    seals, files = read_seals(results), _files(results)
    found = _told_apart(files, seals)
    # Somebody who holds the folder may write while it is looked through: what changed meanwhile is sealed by now.
    return _told_apart({name: files[name] for name, _ in found}, read_seals(results)) if found else []


def _told_apart(files: Mapping[str, Path], seals: Seals) -> list[tuple[str, str]]:
    sealed = {name: path for name, path in files.items() if name in seals.known}
    sound = {seal[0] for seal in seals_of(sealed) if seals.hold(seal)}
    found = []
    for name, path in files.items():
        if name not in sound and path.exists():
            problem = _unreadable(name, path) or (_OTHER if name in sealed and seals.whole else "")
            found += [(name, problem)] if problem else []
    return found


def _files(results: Path) -> dict[str, Path]:
    """The files that a run makes, or that were sealed, by their names; no ledger, and nothing that was set aside."""
    known, found = read_seals(results).known, {}
    for path in files_below(results):
        name = path.relative_to(results).as_posix()
        aside = any(part.endswith(SUFFIX) for part in name.split("/"))
        if (_run_makes(name) or name in known) and not aside and path.name not in (_UNSEALED, *_LEDGERS):
            found[name] = path
    return found


def _gone(results: Path, name: str) -> tuple[Path, ...]:
    """The files and folders that go with a damaged one."""
    parts, path = name.split("/"), results / name
    if len(parts) > 3 and parts[2] in _SESSION_OF:
        form = results / parts[0] / parts[1]
        return form / parts[2], form / _SESSION_OF[parts[2]] / "session.json"
    if len(parts) == 4 and _run_makes(name):
        return tuple(dict.fromkeys((path, path.with_name("session.json"))))
    return (path,)


def _seal(results: Path) -> None:
    """Let the seals be those of the files that are there: one for each, and none of what is gone."""
    read, files = read_seals(results), _files(results)
    sure = {name: next(iter(found)) for name, found in read.known.items() if len(found) == 1 and read.whole}
    seals = [(name, *sure[name]) for name in files if name in sure]
    seals += seals_of({name: path for name, path in files.items() if name not in sure})
    for path in _ledgers(results):
        seals += [seal_of_line(path.name, line) for line in path.read_bytes().split(b"\n")[:-1]]
    write_seals(results, seals, read)


@cache
def _readers() -> tuple[tuple[re.Pattern[str], Callable[[Path], object]], ...]:
    readers: list[tuple[str, Callable[[Path], object]]] = [
        *((pattern, partial(read_record, kind=kind)) for pattern, kind in _OBJECTS.items()),
        *((pattern, partial(_read_whole_table, kind=kind)) for pattern, kind in _TABLES.items()),
        *((pattern, str) for pattern in _OTHERS),
    ]
    star = {r"\*\*": ".*", r"\*": "[^/]*"}
    return tuple(
        (re.compile(re.sub(r"(?:\\\*)+", lambda match: star[match[0]], re.escape(pattern))), read)
        for pattern, read in readers
    )


def _run_makes(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern, _ in _readers())


def _unreadable(name: str, path: Path) -> str:
    """Why a file cannot be read as what its name says; empty when it can, or where nothing is known of its kind."""
    for pattern, read in _readers():
        if pattern.fullmatch(name):
            try:
                read(path)
            except InputError as error:
                return error.what
    return ""


def _read_whole_table(path: Path, kind: type[Record]) -> None:
    content = file_bytes(path)
    if not content.endswith(b"\n"):
        raise InputError("its last line is cut off" if content else "it is empty", where=str(path))
    read_table(path, kind)


def _damaged_ledgers(results: Path) -> Iterator[Damage]:
    """Ledgers with lines that cannot be read or were not written so. They grow and cannot be made again: only such
    lines go; making ``contracts.json`` again completes the one of contracts."""
    seals = read_seals(results)
    for path in _ledgers(results):
        lost = _lines(path, seals)[1]
        if lost:
            gone = (results / "contracts.json",) if path.name == LEDGER else ()
            yield Damage(path, f"{lost} damaged line(s)", gone, "the other lines stay")


def _ledgers(results: Path) -> list[Path]:
    return [path for name in _LEDGERS if (path := results / name).exists()]


def _mend_ledger(path: Path, seals: Seals) -> None:
    with _told(path, "is damaged and cannot be set aside"):
        write_bytes(path.with_name(path.name + SUFFIX), path.read_bytes())
        write_bytes(path, b"".join(line + b"\n" for line in _lines(path, seals)[0]))


def _lines(path: Path, seals: Seals) -> tuple[list[bytes], int]:
    """The sound lines of a ledger, and how many others it has."""
    *whole, torn = path.read_bytes().split(b"\n")
    sealed = seals.whole and path.name in seals.known
    good = [line for line in whole if _is_entry(path, line)]
    if sealed:
        good = [line for line in good if seals.hold(seal_of_line(path.name, line))]
    if len(good) == len(whole) and (good or not torn):
        return good, 0  # a torn last line alone is what a killed writer leaves: the next one removes it
    return good, len(whole) - len(good) + bool(torn)


def _is_entry(path: Path, line: bytes) -> bool:
    if path.name != LEDGER:
        return True
    try:
        parse_record(line, LedgerEntry, where=path.name)
    except InputError:
        return False
    return True


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} ({error.strerror})", where=str(path), todo="make results/ readable and writable"
        ) from None
