"""Records into the history: one transaction per session, and the same session twice is one row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from anchormatrix.errors import InputError
from anchormatrix.history.store import History
from anchormatrix.history.surroundings import surroundings_of
from anchormatrix.records.conclusions.cells import spread_pct
from anchormatrix.records.contract import StoredContract
from anchormatrix.records.night import NOT_STARTED, Place, night_of
from anchormatrix.records.session import SessionStatus
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import TimedSession, read_session


def record_session(history: History, path: Path) -> bool:
    """Record one ``session.json`` with the ``requests.csv`` beside it; ``False`` when it was recorded before.

    The contract's facts are taken from ``contract.json`` two folders above, when they are there. Raises
    :class:`InputError` naming the file that cannot be read; nothing is recorded then.
    """
    timed = read_session(path)
    session = timed.session
    if path.parts[-4:-1] != (session.contract, session.form, f"w{session.window}"):
        what = f"is {session.form} window {session.window} of {session.contract}"
        raise InputError(what, where=str(path), expected="the contract, form and window of its folder")
    started = _moment(session.started_at or "")
    if started is None and session.status is SessionStatus.SKIPPED:  # left out on purpose: it has no times of its own
        started = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    if started is None:
        raise InputError(
            f"started_at is {session.started_at!r}",
            where=str(path),
            expected="a time as 2026-11-30T23:00:00+00:00",
        )
    facts = _contract_facts(path.parent.parent.parent / "contract.json", session.contract)
    seen = surroundings_of(session)
    with history.transaction() as connection:
        if facts is not None:
            connection.execute("INSERT OR REPLACE INTO contracts (id, size, version, facts) VALUES (?, ?, ?, ?)", facts)
        night = session.night or night_of(started.astimezone().replace(tzinfo=None))
        cursor = connection.execute(
            "INSERT OR IGNORE INTO sessions (contract, form, window, generation, night, status, reason, started_at,"
            " finished_at, duration_s, health, temperature_c, tenants, load, versions)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session.contract, session.form, session.window, session.generation, night, session.status.value,
                session.reason, _iso(started), session.finished_at or "", session.duration_s,
                seen.health, seen.temperature_c, seen.tenants, seen.load, json.dumps(dict(seen.versions)),
            ),
        )  # fmt: skip
        if not cursor.rowcount:
            return False
        _insert_cells(history, timed, night, int(cursor.lastrowid or 0))
    return True


def record_not_started(history: History, place: Place, night: str, reason: str, now: datetime) -> None:
    """Record that a session of a night was not started, and why. A later refusal of the same session replaces it."""
    with history.transaction() as connection:
        key = (place.contract, place.form, place.window, night, NOT_STARTED)
        connection.execute(
            "DELETE FROM sessions WHERE contract = ? AND form = ? AND window = ? AND night = ? AND status = ?", key
        )
        connection.execute(
            "INSERT OR REPLACE INTO sessions (contract, form, window, generation, night, status, reason, started_at,"
            " finished_at, health, tenants, versions) VALUES (?, ?, ?, 0, ?, ?, ?, ?, '', '', 0, '{}')",
            (place.contract, place.form, place.window, night, NOT_STARTED, reason, _iso(now)),
        )


def record_results(history: History, results: Path) -> tuple[int, list[str]]:
    """Record every session of a results folder that is not recorded yet: how many were new, and what was unreadable.

    This is how a history catches up after its writer was killed, or begins anew.
    """
    return record_sessions(history, sorted(results.glob("c*-*/*/w*/session.json")))


def record_sessions(history: History, paths: Iterable[Path]) -> tuple[int, list[str]]:
    """Record some sessions: how many were new, and what was unreadable."""
    new, problems = 0, []
    for path in paths:
        try:
            new += record_session(history, path)
        except InputError as error:
            problems.append(str(error))
    return new, problems


def _insert_cells(history: History, timed: TimedSession, night: str, session: int) -> None:
    for tier, values in timed.values_s.items():
        name = (timed.session.contract, timed.session.form, tier)
        history.connection.execute("INSERT OR IGNORE INTO series (contract, form, tier) VALUES (?, ?, ?)", name)
        (series,) = history.connection.execute(
            "SELECT id FROM series WHERE contract = ? AND form = ? AND tier = ?", name
        ).fetchone()
        history.connection.execute(
            "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?)",
            (series, night, session, median(values), spread_pct(values), json.dumps(list(values))),
        )


def _contract_facts(path: Path, expected: str) -> tuple[str, int, int, str] | None:
    if not path.exists():
        return None
    contract = read_record(path, StoredContract)
    if contract.id != expected:
        raise InputError(f"is {contract.id}", where=str(path), expected=f"{expected}, which its sessions name")
    return contract.id, contract.size, contract.version, contract.canonical


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _iso(moment: datetime) -> str:
    """UTC, so that the order of texts is the order of times."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")
