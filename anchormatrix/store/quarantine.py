"""Result files of an earlier run that cannot be read any more: set aside, so that the run makes them again.

Files are written whole, so a damaged one was damaged later, by a disk or a hand. Its neighbours stay.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anchormatrix.errors import InputError
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

SUFFIX = ".damaged"
LEDGER = "contracts.jsonl"
_OBJECTS: Mapping[str, type[FileRecord]] = {
    "topology.json": Topology,
    "health.json": HostHealth,
    "contracts.json": ContractList,
    "c*-*/contract.json": StoredContract,
    "c*-*/smoke.json": Smoke,
    "c*-*/outputs.json": Outputs,
    "c*-*/verdict.json": Verdict,
    "c*-*/gates.json": Gates,
    "c*-*/*/attribution*.json": Attribution,
    "c*-*/*/w*/session.json": Session,
    "bandwidth/c*-*.json": SizeSweep,
    "matrix_report/decision.json": Decision,
    "matrix_report/summary.json": FileRecord,
}
_TABLES: Mapping[str, type[Record]] = {
    "c*-*/cells.csv": Cell,
    "c*-*/*/w*/requests.csv": RequestRow,
    "matrix_report/cells.csv": Record,
}


@dataclass(frozen=True)
class Damage:
    """A result that cannot be read any more. ``gone`` names what will be missing once it is set aside."""

    path: Path
    problem: str
    gone: tuple[Path, ...]

    def words(self, done: str) -> str:
        """A sentence on it, that ends with what is done about it."""
        return f"{self.path} is damaged ({self.problem}): {done}"


def find_damaged(results: Path) -> tuple[Damage, ...]:
    """Every damaged result; nothing is changed.

    A session whose requests are damaged is damaged as a whole: its ``session.json`` stands for all its files.
    """
    found = []
    for path, problem in _damaged(results):
        session = path.with_name("session.json")
        whole = path.name == "requests.csv" and session.exists()
        found.append(Damage(path, problem, (path, session) if whole else (path,)))
    return (*found, *_damaged_ledger(results))


def set_aside(results: Path, found: Sequence[Damage]) -> tuple[str, ...]:
    """Rename what was found damaged to ``NAME.damaged``; returns a sentence for each.

    Of a ledger only the damaged lines go. Raises :class:`InputError` when a file cannot be renamed.
    """
    for one in found:
        if one.path.name == LEDGER:
            _mend_ledger(one.path)
        for path in one.gone:
            with _told(path):
                if path.name == "contracts.json" and one.path.name == LEDGER:
                    path.unlink(missing_ok=True)
                elif path.exists():
                    os.replace(path, path.with_name(path.name + SUFFIX))
    return tuple(one.words("set aside, and made again") for one in found)


def _damaged(results: Path) -> Iterator[tuple[Path, str]]:
    readers: list[tuple[str, Callable[[Path], object]]] = [
        (pattern, partial(read_record, kind=kind)) for pattern, kind in _OBJECTS.items()
    ]
    readers += [(pattern, partial(_read_whole_table, kind=kind)) for pattern, kind in _TABLES.items()]
    for pattern, read in readers:
        for path in results.glob(pattern):
            try:
                read(path)
            except InputError as error:
                yield path, error.what


def _read_whole_table(path: Path, kind: type[Record]) -> None:
    content = file_bytes(path)
    if not content.endswith(b"\n"):
        raise InputError("its last line is cut off" if content else "it is empty", where=str(path))
    read_table(path, kind)


def _damaged_ledger(results: Path) -> Iterator[Damage]:
    """The unreadable lines in the ledger of contracts; making ``contracts.json`` again completes it."""
    path = results / LEDGER
    if path.exists():
        with _told(path):
            content = path.read_bytes()
        lost = _lines(content)[1]
        if lost:
            yield Damage(path, f"{lost} damaged line(s)", (results / "contracts.json",))


def _mend_ledger(path: Path) -> None:
    with _told(path):
        content = path.read_bytes()
        write_bytes(path.with_name(path.name + SUFFIX), content)
        write_bytes(path, b"".join(line + b"\n" for line in _lines(content)[0]))


def _lines(content: bytes) -> tuple[list[bytes], int]:
    """The sound lines of a ledger, and how many others it has."""
    *whole, torn = content.split(b"\n")
    good = [line for line in whole if _is_entry(line)]
    if len(good) == len(whole) and (good or not torn):
        return good, 0  # a torn last line alone is what a killed writer leaves: the next one removes it
    return good, len(whole) - len(good) + bool(torn)


def _is_entry(line: bytes) -> bool:
    try:
        parse_record(line, LedgerEntry, where="contracts.jsonl")
    except InputError:
        return False
    return True


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"is damaged and cannot be set aside ({error.strerror})", where=str(path), todo="make results/ writable"
        ) from None
