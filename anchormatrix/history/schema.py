"""The tables of a history: made, brought up to date, and compared with what a file holds.

The version is SQLite's own ``user_version``. A file whose tables are not what the migrations up to its version make is
no history of ours any more, whoever changed it.
"""

from __future__ import annotations

import contextlib
import sqlite3

from anchormatrix.errors import InputError

# One script per version, applied in order, each in its own transaction. A published script is never edited.
MIGRATIONS = (
    """
    CREATE TABLE contracts (
        id TEXT PRIMARY KEY, size INTEGER NOT NULL, version INTEGER NOT NULL, facts TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        contract TEXT NOT NULL, form TEXT NOT NULL, window INTEGER NOT NULL, generation INTEGER NOT NULL,
        night TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,
        started_at TEXT NOT NULL, finished_at TEXT NOT NULL, duration_s REAL,
        health TEXT NOT NULL, temperature_c REAL, tenants INTEGER NOT NULL, load REAL, versions TEXT NOT NULL,
        UNIQUE (contract, form, window, started_at)
    );
    CREATE INDEX sessions_of_night ON sessions (night, contract, form, window);
    CREATE TABLE series (
        id INTEGER PRIMARY KEY, contract TEXT NOT NULL, form TEXT NOT NULL, tier TEXT NOT NULL,
        UNIQUE (contract, form, tier)
    );
    CREATE TABLE cells (
        series INTEGER NOT NULL REFERENCES series (id), night TEXT NOT NULL,
        session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        step_s REAL NOT NULL, dispersion_pct REAL NOT NULL, values_s TEXT NOT NULL,
        PRIMARY KEY (series, night, session)
    ) WITHOUT ROWID;
    CREATE INDEX cells_of_session ON cells (session);
    CREATE TABLE nights (
        night TEXT PRIMARY KEY, started_at TEXT NOT NULL, finished_at TEXT, deadline_at TEXT NOT NULL,
        starts INTEGER NOT NULL DEFAULT 0, outcome TEXT NOT NULL DEFAULT '', notes TEXT NOT NULL DEFAULT '[]'
    ) WITHOUT ROWID;
    """,
)

_Shape = dict[str, object]


def version(connection: sqlite3.Connection) -> int:
    """The version of the tables; 0 in an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def newest() -> int:
    """The version of the tables that this software writes."""
    return len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables up to date; two processes that try at once do it once."""
    while (found := version(connection)) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version(connection) == found:
                for statement in MIGRATIONS[found].split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {found + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def schema_fault(connection: sqlite3.Connection, where: str) -> str:
    """In what the tables differ from what their version should hold; empty when they do not, or in an empty file.

    Raises :class:`InputError` for a file that belongs to a newer version of this software or to another program: it
    is to be left alone.
    """
    found, shape = version(connection), _shape(connection)
    if not shape and found <= 0:
        return f"has version {found} and no tables" if found else ""
    if found > len(MIGRATIONS):
        raise InputError(
            f"has schema {found}",
            where=where,
            expected=f"{len(MIGRATIONS)}",
            todo="it is written by another version of this software: use that one, or give another history.file",
        )
    newest = _made(len(MIGRATIONS))
    if shape and not shape.keys() & newest.keys():
        raise InputError(
            f"is another program's database ({', '.join(sorted(shape)[:4])})",
            where=where,
            expected="a history, or no file",
            todo="give another history.file",
        )
    if found < 1:
        return f"has version {found} although it holds tables"
    expected = _made(found)
    missing = sorted(expected.keys() - shape.keys())
    other = sorted(name for name in expected.keys() & shape.keys() if expected[name] != shape[name])
    # Another table or index does nothing; a trigger changes what is recorded.
    strange = sorted(name for name in shape.keys() - expected.keys() if name.startswith("trigger "))
    words = [f"has a {name} that no version makes" for name in strange]
    words += [*(f"has no {name}" for name in missing), *(f"has another {name} than version {found}" for name in other)]
    return ", ".join(words)


def _made(number: int) -> _Shape:
    """The shape that the migrations up to a version make."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in MIGRATIONS[:number]:
            connection.executescript(script)
        return _shape(connection)


def _shape(connection: sqlite3.Connection) -> _Shape:
    """Every table and named index with the statement that made it, spaces aside: columns, types, constraints."""
    rows = connection.execute(
        "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    )
    return {str(name): "".join(str(sql).split()) for name, sql in rows}
