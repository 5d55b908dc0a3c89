"""Result files of an earlier run that cannot be read any more: set aside, so that the run makes them again.

Files are written whole, so a damaged one was damaged later, by a disk or a hand. Its neighbours stay.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord
from anchormatrix.records.contract import ContractList, LedgerEntry, StoredContract
from anchormatrix.records.host import HostHealth, Topology
from anchormatrix.store.codec import parse_record, read_record
from anchormatrix.store.files import read_json, write_bytes

SUFFIX = ".damaged"
_OBJECTS: Mapping[str, type[FileRecord] | None] = {
    "topology.json": Topology,
    "health.json": HostHealth,
    "contracts.json": ContractList,
    "c*-*/contract.json": StoredContract,
    "c*-*/smoke.json": None,
    "c*-*/verdict.json": None,
    "c*-*/gates.json": None,
    "c*-*/*/attribution.json": None,
    "c*-*/*/w*/session.json": None,
    "bandwidth/c*-*.json": None,
    "matrix_report/*.json": None,
}
_TABLES = ("c*-*/cells.csv", "c*-*/*/w*/requests.csv", "matrix_report/cells.csv")


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
    for pattern, kind in _OBJECTS.items():
        for path in results.glob(pattern):
            try:
                read_record(path, kind) if kind else read_json(path)
            except InputError as error:
                yield path, error.what
    for pattern in _TABLES:
        for path in results.glob(pattern):
            problem = _table_problem(path)
            if problem:
                yield path, problem


def _table_problem(path: Path) -> str:
    """What is wrong with a CSV file of ours, empty if nothing: whole lines, all with the header's number of fields."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            text = stream.read()
        rows = list(csv.reader(text.splitlines(keepends=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return str(error)
    if not text.endswith("\n"):
        return "its last line is cut off" if text else "it is empty"
    return "" if {len(row) for row in rows} == {len(rows[0])} else "a line has another number of fields"


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
