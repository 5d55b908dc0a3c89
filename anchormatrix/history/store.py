"""The history file: opened, migrated, and moved aside when it is damaged.

SQLite in WAL mode: a writer killed at any moment leaves the last whole transaction; readers never wait for writers.
Every session is one transaction.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from anchormatrix.errors import InputError
from anchormatrix.history.salvage import Taken, rows_fault, take_over
from anchormatrix.history.schema import migrate, newest, schema_fault, version

BUSY_S = 30.0  # how long a writer waits for another one
READ_S = 2.0  # a reader waits for none in WAL mode, unless somebody holds the file for himself
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_COMPANIONS = ("", "-wal", "-shm")
_REPAIR = "run scripts/history.py check --repair: it moves the file aside and begins anew with what can be read"
_PERMISSION = "let this user write the file and its folder (ls -l, lsattr), or give another history.file"


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
def open_history(path: Path | str, *, busy_s: float | None = None) -> Iterator[History]:
    """Open a history for writing, making or migrating it first; another process is waited for at most ``busy_s``.

    A file that is damaged, no database, or of another shape than its version is moved aside under a name with the
    time, and a new one is begun with the rows that could be taken over; ``History.notice`` then says so. Raises
    :class:`InputError` when it cannot be used, is not ours to touch, or when damage shows later.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made ({error})", where=str(path.parent), todo="correct history.file") from None
    notice = ""
    with _told(path):
        try:
            connection = _opened(path, busy_s)
        except (sqlite3.DatabaseError, _OtherShapeError) as error:
            if not isinstance(error, _OtherShapeError) and not _is_damage(error):
                raise
            notice = move_aside(path)
            connection = _opened(path, busy_s)
        with contextlib.closing(connection):
            yield History(path, connection, notice)


@contextlib.contextmanager
def read_history(path: Path | str) -> Iterator[History | None]:
    """Open a history only to read it; ``None`` when there is none yet.

    Raises :class:`InputError` when the file is damaged, held by another process, of another shape than its version or
    not ours; it is left where it is.
    """
    path = Path(path)
    if not path.exists():
        yield None
        return
    with _told(path), contextlib.closing(connect(path, write=False)) as connection:
        if fault := schema_fault(connection, str(path)):
            raise _OtherShapeError(fault, where=str(path), expected="the tables of a history", todo=_REPAIR)
        found = version(connection)
        if 0 < found < newest():
            raise InputError(
                f"has schema {found}", where=str(path), expected=f"{newest()}", todo="the next run writes it"
            )
        yield History(path, connection) if found else None


def why_unreadable(path: Path | str) -> str:
    """Why a history cannot be read, in one line; empty when it can be, or when there is none yet."""
    try:
        with read_history(path):
            return ""
    except InputError as error:
        return str(error)


def connect(path: Path, *, write: bool = True, busy_s: float | None = None) -> sqlite3.Connection:
    """Connect to a file, made if it is missing, or only to read it. Raises :class:`sqlite3.DatabaseError`.

    Where nothing waits in its write-ahead log a file is read as it is: SQLite leaves no file of its own beside it then,
    and needs none where nothing can be written.
    """
    if write:
        return sqlite3.connect(path, timeout=BUSY_S if busy_s is None else busy_s, isolation_level=None)
    waiting = Path(f"{path}-wal")
    way = "mode=ro" if waiting.exists() and waiting.stat().st_size else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?{way}", uri=True, timeout=READ_S)


def check(path: Path | str) -> str:
    """What is wrong with a history file, in one line; empty when it is sound, empty or not there.

    Tables are compared with their version's and with their indexes, and every row is read. Raises
    :class:`InputError` for a file that cannot be used, or is not ours to touch.
    """
    path = Path(path)
    if not path.exists():
        return ""
    with _told(path):
        try:
            with contextlib.closing(connect(path)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                if fault := schema_fault(connection, str(path)):
                    return fault
                found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
                orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(3)
                found += [f"a cell without its session: {row}" for row in orphans]
                if found == ["ok"]:
                    return rows_fault(connection)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            return " ".join(str(error).split())
    return " ".join("; ".join(found).split())


def move_aside(path: Path | str) -> str:
    """Give a damaged history another name, under a lock, unless somebody has done so already; says what was done.

    What can still be read of it is taken over into the new one. Raises :class:`InputError` when it cannot be moved.
    """
    path = Path(path)
    try:
        with Path(f"{path}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fault = check(path)
            if not fault:
                return f"{path} was damaged; another process has moved it aside and begun a new history"
            aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
            for ending in _COMPANIONS:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{path}{ending}").rename(f"{aside}{ending}")
            taken = _taken_over(aside, path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error), _PERMISSION) from None
    return f"{path} is damaged ({fault}); it is kept as {aside.name}, and a new history begins, {taken}"


def _taken_over(aside: Path, path: Path) -> str:
    with contextlib.closing(_opened(path, None)) as new:
        try:
            with contextlib.closing(connect(aside, write=False)) as old:
                return str(take_over(old, new))
        except sqlite3.DatabaseError:
            return str(Taken(0, 0))


def _opened(path: Path, busy_s: float | None) -> sqlite3.Connection:
    connection = connect(path, busy_s=busy_s)
    try:
        if fault := schema_fault(connection, str(path)):
            raise _OtherShapeError(fault, where=str(path))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class _OtherShapeError(InputError):
    """The tables are not those of the file's version: it is moved aside."""


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ones that name the file, what is the matter with it, and what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            raise InputError(f"is damaged ({error})", where=str(path), todo=_REPAIR) from None
        raise _unusable(path, str(error), _advice(path, error)) from None
    except (ValueError, TypeError) as error:  # what a query finds in a row, as JSON or as a number
        raise InputError(f"holds what cannot be read ({error})", where=str(path), todo=_REPAIR) from None


def _unusable(path: Path, what: str, todo: str) -> InputError:
    return InputError(f"cannot be used ({what})", where=str(path), todo=todo)


def _advice(path: Path, error: sqlite3.DatabaseError) -> str:
    """What a person can do about a file that SQLite could not use."""
    code = _code(error)
    if path.is_dir():
        return "it is a folder: give another history.file"
    for ending in ("-wal", "-shm"):
        beside = Path(f"{path}{ending}")
        if beside.is_dir() or (beside.exists() and not os.access(beside, os.W_OK)):
            return f"SQLite must be able to write {beside.name} beside it: remove what has that name"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"it is held by another process: see fuser {path}, and end that one if it hangs"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return _PERMISSION
    if code == sqlite3.SQLITE_FULL:
        return f"make room on the disk of {path.parent}"
    if code == sqlite3.SQLITE_IOERR:
        return f"check the disk of {path.parent}, its free space and its quota"
    return _REPAIR


def _code(error: sqlite3.DatabaseError) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return _code(error) in _DAMAGED
