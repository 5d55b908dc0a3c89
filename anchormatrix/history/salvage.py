"""The rows of one history taken over into another: from a file moved aside, or from the stand-in of one that could not
be used. Only rows that can be believed are, each of them once.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.records.contract import Contract
from anchormatrix.records.session import SessionStatus
from anchormatrix.store.codec import parse_record

_Row = dict[str, Any]
_MEASURED = SessionStatus.MEASURED.value


@dataclass(frozen=True)
class Taken:
    """How many sessions were taken over, of how many nights."""

    sessions: int
    nights: int

    def __str__(self) -> str:
        nights = "1 night is" if self.nights == 1 else f"{self.nights} nights are"
        return f"{self.sessions} sessions of {nights} taken over"


def rows_fault(connection: sqlite3.Connection) -> str:
    """Which rows hold what no history holds, in one line; empty when all can be read."""
    for table in _READABLE:
        rows = list(_rows(connection, table))
        bad = sum(not _believable(table, row) for row in rows)
        if bad:
            return f"{bad} of {len(rows)} rows of {table} hold what cannot be read"
    return ""


def take_over(old: sqlite3.Connection, new: sqlite3.Connection) -> Taken:
    """Copy what can be read and believed; a session that is there already stays as it is.

    A measured session whose numbers are gone is left out: results/ may still hold them.
    """
    series = {row["id"]: row for row in _good(old, "series")}
    cells: dict[int, list[_Row]] = {}
    for row in _good(old, "cells"):
        if row["series"] in series:
            cells.setdefault(row["session"], []).append(row)
    nights, count = set(), 0
    new.execute("BEGIN IMMEDIATE")
    try:
        for table in ("contracts", "nights"):
            for row in _good(old, table):
                _insert(new, table, row, "REPLACE" if row.get("outcome") else "IGNORE")
        for row in _good(old, "sessions"):
            found = cells.get(row.pop("id"), [])
            if row["status"] == _MEASURED and not found:
                continue
            session = _insert(new, "sessions", row, "IGNORE")
            if session is None:
                continue
            count += 1
            nights.add(row["night"])
            for cell in found:
                name = {key: series[cell["series"]][key] for key in ("contract", "form", "tier")}
                _insert(new, "series", name, "IGNORE")
                (number,) = new.execute(
                    "SELECT id FROM series WHERE contract = :contract AND form = :form AND tier = :tier", name
                ).fetchone()
                _insert(new, "cells", {**cell, "series": number, "session": session}, "IGNORE")
    except BaseException:
        new.execute("ROLLBACK")
        raise
    new.execute("COMMIT")
    return Taken(count, len(nights))


def _good(connection: sqlite3.Connection, table: str) -> Iterator[_Row]:
    return (row for row in _rows(connection, table) if _believable(table, row))


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[_Row]:
    """The rows of a table, as far as they can be read; none when a column without a default is missing."""
    needed, known = _COLUMNS[table]
    with contextlib.suppress(sqlite3.Error):
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if not needed <= there:
            return
        names = sorted((needed | known) & there)
        # NOT INDEXED: an index that contradicts its table must not hide rows
        for row in connection.execute(f"SELECT {', '.join(names)} FROM {table} NOT INDEXED"):
            yield dict(zip(names, row, strict=True))


def _insert(connection: sqlite3.Connection, table: str, row: Mapping[str, Any], otherwise: str) -> int | None:
    """Insert a row; its id, or None when it was there."""
    done = connection.execute(
        f"INSERT OR {otherwise} INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row
    )
    return done.lastrowid if done.rowcount else None


def _believable(table: str, row: _Row) -> bool:
    """Whether a row is what the software writes."""
    try:
        kinds = all(isinstance(value, _kinds(f"{table}.{name}")) for name, value in row.items())
        return kinds and bool(_READABLE[table](row))
    except (ValueError, InputError, KeyError, TypeError):
        return False


def _kinds(name: str) -> tuple[type, ...]:
    column = name.partition(".")[2]
    if column in ("window", "generation", "tenants", "size", "version", "series", "session", "starts"):
        return (int,)
    if name in ("sessions.id", "series.id"):
        return (int,)
    if column in ("duration_s", "temperature_c", "load"):
        return (float, int, type(None))
    if column in ("step_s", "dispersion_pct"):
        return (float, int)
    return (str, type(None)) if name == "nights.finished_at" else (str,)


def _is_contract(row: _Row) -> bool:
    return parse_record(row["facts"], Contract, where="contract").id == row["id"]


def _is_session(row: _Row) -> bool:
    datetime.fromisoformat(row["started_at"])
    return bool(date.fromisoformat(row["night"])) and isinstance(json.loads(row.get("versions", "{}")), dict)


def _is_cell(row: _Row) -> bool:
    values = json.loads(row["values_s"])
    return row["step_s"] > 0 and bool(values) and all(value > 0 and math.isfinite(value) for value in values)


def _is_night(row: _Row) -> bool:
    notes = json.loads(row.get("notes", "[]"))
    return bool(date.fromisoformat(row["night"])) and all(isinstance(note, str) for note in notes)


_READABLE: dict[str, Callable[[_Row], bool]] = {
    "contracts": _is_contract, "series": lambda row: True, "sessions": _is_session, "cells": _is_cell,
    "nights": _is_night,
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of every table the columns without which a row means nothing, and those that may be missing.
_COLUMNS = {
    "contracts": (_words("id size version facts"), _words("")),
    "series": (_words("id contract form tier"), _words("")),
    "sessions": (
        _words("id contract form window generation night status reason started_at finished_at health tenants versions"),
        _words("duration_s temperature_c load"),
    ),
    "cells": (_words("series night session step_s dispersion_pct values_s"), _words("")),
    "nights": (_words("night started_at deadline_at"), _words("finished_at starts outcome notes")),
}
