"""What can be wrong with a history file, each made in a moment: damage, other schemas, other files in its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

Fault = Callable[[Path], None]


def _sql(script: str) -> Fault:
    def spoil(file: Path) -> None:
        with sqlite3.connect(file) as connection:
            connection.executescript(script)
        connection.close()

    return spoil


def _replaced(make: Fault) -> Fault:
    def spoil(file: Path) -> None:
        for path in file.parent.glob(f"{file.name}*"):
            path.unlink()
        make(file)

    return spoil


def _write_ahead_log_is_a_folder(file: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{file}{ending}").unlink(missing_ok=True)
    Path(f"{file}-wal").mkdir()
    (Path(f"{file}-wal") / "x").write_text("")


MENDED: dict[str, Fault] = {  # the rows of other tables can be taken over into a new history
    "no nights": _sql("DROP TABLE nights"),
    "a missing column": _sql("ALTER TABLE nights DROP COLUMN notes"),
    "an extra column": _sql("ALTER TABLE cells ADD COLUMN colour TEXT NOT NULL DEFAULT ''"),
    "no index": _sql("DROP INDEX sessions_of_night"),
    "another type": _sql(
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = replace(sql, 'duration_s REAL', 'duration_s TEXT') WHERE name = 'sessions'"
    ),
    "no constraint": _sql(
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL DEFAULT 0', '') WHERE name = 'nights'"
    ),
    "an index that contradicts its table": _sql(
        "DROP INDEX sessions_of_night;"
        "CREATE INDEX sessions_of_night ON sessions (night, contract, form, window) WHERE form = 'x';"
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = replace(sql, ' WHERE form = ''x''', '') WHERE name = 'sessions_of_night'"
    ),
    "a trigger that changes what is recorded": _sql(
        "CREATE TRIGGER doubled AFTER INSERT ON cells BEGIN UPDATE cells SET step_s = 2 * step_s; END"
    ),
    "version 0": _sql("PRAGMA user_version = 0"),
    "version -3": _sql("PRAGMA user_version = -3"),
}
LOST: dict[str, Fault] = {  # nothing can be taken over
    "no cells": _sql("DROP TABLE cells"),
    "no sessions": _sql("DROP TABLE sessions"),
    "circumstances that are no JSON": _sql("UPDATE sessions SET versions = 'x'"),
    "values that are no JSON": _sql("UPDATE cells SET values_s = 'x'"),
    "a night that is no date": _sql("UPDATE sessions SET night = 'x'"),
    "no database": _replaced(lambda file: file.write_bytes(b"no database " * 100) and None),
    "empty": _replaced(lambda file: file.write_bytes(b"") and None),
    "gone": _replaced(lambda file: None),
}
LEFT_ALONE: dict[str, Fault] = {  # not ours to touch, or nothing to be done by us: what is measured waits
    "version 99": _sql("PRAGMA user_version = 99"),
    "another program's": _replaced(_sql("CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 1")),
    "a folder": _replaced(Path.mkdir),
    "a write-ahead log that is a folder": _write_ahead_log_is_a_folder,
}
