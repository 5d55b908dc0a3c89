"""Result files of an earlier run that cannot be read any more: set aside, so that the run makes them again.

Files are written whole, so a damaged one was damaged later, by a disk or a hand. Its neighbours stay.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
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


def set_aside(results: Path) -> tuple[str, ...]:
    """Rename every damaged result to ``NAME.damaged``; returns a sentence for each.

    A session whose requests are damaged is set aside as a whole: its ``session.json`` stands for all its files. Of a
    ledger only the damaged lines go. Raises :class:`InputError` when a file cannot be renamed.
    """
    said = []
    for path, problem in _damaged(results):
        with _told(path):
            os.replace(path, path.with_name(path.name + SUFFIX))
        session = path.with_name("session.json")
        if path.name == "requests.csv" and session.exists():
            with _told(session):
                os.replace(session, session.with_name(session.name + SUFFIX))
        said.append(f"{path} is damaged ({problem}): set aside, and made again")
    said += _mended_ledger(results)
    return tuple(said)


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


def _mended_ledger(results: Path) -> list[str]:
    """Take the unreadable lines out of the ledger of contracts; making ``contracts.json`` again completes it."""
    path = results / "contracts.jsonl"
    if not path.exists():
        return []
    with _told(path):
        content = path.read_bytes()
    lines = content.split(b"\n")
    whole, torn = lines[:-1], lines[-1]
    good = [line for line in whole if _is_entry(line)]
    if len(good) == len(whole) and (good or not torn):
        return []  # a torn last line alone is what a killed writer leaves: the next one removes it
    with _told(path):
        write_bytes(path.with_name(path.name + SUFFIX), content)
        write_bytes(path, b"".join(line + b"\n" for line in good))
        (results / "contracts.json").unlink(missing_ok=True)
    lost = len(whole) - len(good) + bool(torn)
    return [f"{path}: {lost} damaged line(s) set aside in {path.name}{SUFFIX}; versions are counted from the others"]


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
