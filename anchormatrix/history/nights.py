"""The sweeps themselves: when a night's sweep began and ended, how often it was started, what it amounted to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from anchormatrix.history.query import nights_before, sessions_of_night
from anchormatrix.history.store import History
from anchormatrix.records.night import NightOutcome

_NOTES = 20


@dataclass(frozen=True)
class Night:
    """A night's sweep as recorded; ``outcome`` and ``finished_at`` are empty while it runs, or when it was killed.

    Times are local, as the deadline is.
    """

    night: str
    started_at: str
    finished_at: str
    starts: int
    outcome: str
    notes: tuple[str, ...]


def begin(history: History, night: str, now: datetime, deadline: datetime) -> None:
    """Record that a sweep starts; a second start in the same night goes on with the first."""
    with history.transaction() as connection:
        _ensure(history, night, now, deadline)
        connection.execute(
            "UPDATE nights SET starts = starts + 1, finished_at = NULL, outcome = '' WHERE night = ?", (night,)
        )


def end(history: History, night: str, now: datetime, outcome: NightOutcome, notes: Sequence[str] = ()) -> None:
    """Record how a night's sweep ended; also where its beginning could not be recorded."""
    with history.transaction() as connection:
        _ensure(history, night, now, now)
        connection.execute(
            "UPDATE nights SET finished_at = ?, outcome = ? WHERE night = ?", (_iso(now), outcome.value, night)
        )
        for text in notes:
            _append(history, night, text)


def note(history: History, night: str, text: str, now: datetime, deadline: datetime) -> None:
    """Add a note to a night."""
    with history.transaction():
        _ensure(history, night, now, deadline)
        _append(history, night, text)


def last_nights(history: History, count: int, until: str = "9999") -> tuple[Night, ...]:
    """The last nights that had a sweep, oldest first."""
    rows = history.connection.execute(
        "SELECT night, started_at, coalesce(finished_at, ''), starts, outcome, notes FROM nights"
        " WHERE night <= ? ORDER BY night DESC LIMIT ?",
        (until, count),
    ).fetchall()
    return tuple(
        Night(night, started_at, finished_at, starts, outcome, tuple(json.loads(notes)))
        for night, started_at, finished_at, starts, outcome, notes in reversed(rows)
    )


def measured_sessions(history: History, night: str) -> int:
    """How many sessions of a night have a number."""
    found = history.connection.execute(
        "SELECT count(*) FROM sessions WHERE night = ? AND status = 'measured'", (night,)
    ).fetchone()
    return int(found[0])


def night_lines(history: History, count: int) -> list[str]:
    """The last nights, newest first: contracts, sessions by status, and how the sweep ended."""
    sweeps = {night.night: night for night in last_nights(history, count)}
    seen = sorted({*nights_before(history, "9999", count), *sweeps}, reverse=True)[:count]
    lines = []
    for night in seen:
        sessions = sessions_of_night(history, night).values()
        statuses = Counter(session.status.replace("_", " ") for session in sessions)
        told = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "no session"
        contracts = ", ".join(sorted({session.place.contract for session in sessions})) or "no contract"
        sweep = sweeps.get(night)
        ended = "single runs" if sweep is None else sweep.outcome or "half-finished"
        lines.append(f"{night}  {ended:<18}  {told}  ({contracts})")
    return lines or ["the history is empty"]


def _ensure(history: History, night: str, now: datetime, deadline: datetime) -> None:
    history.connection.execute(
        "INSERT OR IGNORE INTO nights (night, started_at, deadline_at) VALUES (?, ?, ?)",
        (night, _iso(now), _iso(deadline)),
    )


def _append(history: History, night: str, text: str) -> None:
    (stored,) = history.connection.execute("SELECT notes FROM nights WHERE night = ?", (night,)).fetchone()
    kept = [*json.loads(stored), " ".join(text.split())][-_NOTES:]
    history.connection.execute("UPDATE nights SET notes = ? WHERE night = ?", (json.dumps(kept), night))


def _iso(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="minutes")
