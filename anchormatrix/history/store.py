"""The history file: opened, migrated, and moved aside when it is damaged.

SQLite in WAL mode: a writer killed at any moment leaves the last whole transaction; readers never wait for writers.
Every session is one transaction. The schema's version is SQLite's own ``user_version``.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from anchormatrix.errors import InputError

_BUSY_S = 30.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_COMPANIONS = ("", "-wal", "-shm")

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


@dataclass(frozen=True)
class History:
    """An open history. ``notice`` tells that a damaged file was moved aside and a new one begun."""

    path: Path
    connection: sqlite3.Connection
    notice: str = ""

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All statements inside take effect together, or none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


@contextlib.contextmanager
def open_history(path: Path | str) -> Iterator[History]:
    """Open a history for writing, making or migrating it first.

    A file that is damaged, or no database, is moved aside under a name with the time, and a new one is begun;
    ``History.notice`` then says so. Raises :class:`InputError` when it cannot be used, or when damage shows later.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made ({error})", where=str(path.parent), todo="correct history.file") from None
    notice = ""
    try:
        connection = _connect(path)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise _unusable(path, error) from None
        notice = move_aside(path)
        connection = _connect_again(path)
    with contextlib.closing(connection), _told(path):
        yield History(path, connection, notice)


@contextlib.contextmanager
def read_history(path: Path | str) -> Iterator[History | None]:
    """Open a history only to read it; ``None`` when there is none yet.

    Raises :class:`InputError` when the file is damaged or made by a newer version; it is left where it is.
    """
    path = Path(path)
    if not path.exists():
        yield None
        return
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, timeout=_BUSY_S)
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from None
    with contextlib.closing(connection), _told(path):
        found = _version(connection)
        if found == 0:
            yield None
        elif found == len(MIGRATIONS):
            yield History(path, connection)
        else:
            raise _other_version(path, found)


def check(path: Path | str, *, thorough: bool = False) -> str:
    """What is wrong with a history file, in one line; empty when it is sound or not there.

    The quick check reads every page; ``thorough`` also compares indexes with their tables.
    """
    path = Path(path)
    if not path.exists():
        return ""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S)) as connection:
            pragma = "integrity_check" if thorough else "quick_check"
            found = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(3)")]
            found += [f"a cell without its session: {row}" for row in connection.execute("PRAGMA foreign_key_check")][
                :3
            ]
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise _unusable(path, error) from None
        return " ".join(str(error).split())
    return "" if found == ["ok"] else " ".join("; ".join(found).split())


def move_aside(path: Path | str) -> str:
    """Give a damaged history another name, under a lock, unless somebody has done so already; says what was done."""
    path = Path(path)
    with Path(f"{path}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fault = check(path)
        if not fault:
            return f"{path} was damaged; another process has moved it aside and begun a new history"
        aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        for ending in _COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{ending}").rename(f"{aside}{ending}")
    return f"{path} is damaged ({fault}); it is kept as {aside.name}, and a new history begins"


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_again(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from None


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; two processes that try at once do it once."""
    while (found := _version(connection)) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == found:
                for statement in MIGRATIONS[found].split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {found + 1}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    if found > len(MIGRATIONS):
        raise _other_version(path, found)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that name the file and what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: sqlite3.DatabaseError) -> InputError:
    if _is_damage(error):
        todo = "run scripts/history.py check --repair: it moves the file aside and records the results folder anew"
        return InputError(f"is damaged ({error})", where=str(path), todo=todo)
    return InputError(f"cannot be used ({error})", where=str(path), todo="check history.file, its folder and the disk")


def _other_version(path: Path, found: int) -> InputError:
    return InputError(
        f"has schema {found}",
        where=str(path),
        expected=f"{len(MIGRATIONS)}",
        todo="it is written by another version of this software: use that one, or give another history.file",
    )


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED
