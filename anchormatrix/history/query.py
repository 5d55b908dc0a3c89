"""Queries of the history: series over nights, sessions of a night, durations, cells measured again."""

from __future__ import annotations

import itertools
import json
import operator
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anchormatrix.history.store import History
from anchormatrix.history.surroundings import Surroundings
from anchormatrix.records.contract import Contract
from anchormatrix.records.night import Place
from anchormatrix.store.codec import parse_record

_DURATIONS = 5
_COLUMNS = "health, temperature_c, tenants, load, versions"


@dataclass(frozen=True)
class Series:
    """One line of the trend: a form at a tier under one contract. Two contracts are never one series."""

    contract: str
    form: str
    tier: str


@dataclass(frozen=True)
class Point:
    """A series in one night: the latest session of every window, pooled.

    ``step_s`` is the median over ``values_s`` (seconds, in the order measured); ``dispersion_pct`` the worst of the
    windows.
    """

    night: str
    values_s: tuple[float, ...]
    dispersion_pct: float
    surroundings: tuple[Surroundings, ...]

    @property
    def step_s(self) -> float:
        """Median step time of the night in seconds."""
        return median(self.values_s)


@dataclass(frozen=True)
class Recorded:
    """A session as recorded, without its values."""

    place: Place
    generation: int
    night: str
    status: str
    reason: str
    started_at: str
    duration_s: float | None


@dataclass(frozen=True)
class ContractRow:
    """A contract as recorded, with its version among those of its card count."""

    contract: Contract
    version: int


def all_series(history: History, contracts: Sequence[str]) -> tuple[Series, ...]:
    """The series of some contracts, in the order they were first measured."""
    return tuple(
        Series(*row)
        for row in history.connection.execute(
            f"SELECT contract, form, tier FROM series WHERE contract IN ({_marks(contracts)}) ORDER BY id", contracts
        )
    )


def points_of(history: History, series: Series, nights: int, until: str = "9999") -> tuple[Point, ...]:
    """The last ``nights`` nights of a series up to ``until``, oldest first."""
    found = history.connection.execute(
        "SELECT id FROM series WHERE contract = ? AND form = ? AND tier = ?",
        (series.contract, series.form, series.tier),
    ).fetchone()
    if found is None:
        return ()
    rows = history.connection.execute(
        f"SELECT c.night, x.window, c.values_s, c.dispersion_pct, {_COLUMNS} FROM cells c JOIN sessions x"
        " ON x.id = c.session WHERE c.series = :series AND c.night <= :until AND c.night >= (SELECT min(night) FROM"
        " (SELECT DISTINCT night FROM cells WHERE series = :series AND night <= :until ORDER BY night DESC"
        " LIMIT :nights)) ORDER BY c.night, x.started_at, x.id",
        {"series": found[0], "until": until, "nights": nights},
    )
    return tuple(_point(night, group) for night, group in itertools.groupby(rows, key=operator.itemgetter(0)))


def sessions_of_night(history: History, night: str) -> dict[Place, Recorded]:
    """The latest session of every place in a night."""
    rows = history.connection.execute(
        "SELECT contract, form, window, generation, night, status, reason, started_at, duration_s FROM sessions"
        " WHERE night = ? ORDER BY started_at, id",
        (night,),
    )
    return {found.place: found for found in map(_recorded, rows)}


def had_numbers(history: History, contract: str, form: str, before: str) -> bool:
    """Whether a form has a number under a contract in a night earlier than ``before``."""
    return (
        history.connection.execute(
            "SELECT 1 FROM cells c JOIN series s ON s.id = c.series WHERE s.contract = ? AND s.form = ? AND c.night < ?"
            " LIMIT 1",
            (contract, form, before),
        ).fetchone()
        is not None
    )


def nights_before(history: History, night: str, count: int) -> list[str]:
    """The last ``count`` nights with any session before a night, oldest first."""
    rows = history.connection.execute(
        "SELECT DISTINCT night FROM sessions WHERE night < ? ORDER BY night DESC LIMIT ?", (night, count)
    )
    return [row[0] for row in rows][::-1]


def contract_rows(history: History, ids: Sequence[str]) -> dict[str, ContractRow]:
    """Contracts by id. Raises :class:`InputError` for recorded facts that are no contract."""
    rows = history.connection.execute(f"SELECT id, version, facts FROM contracts WHERE id IN ({_marks(ids)})", ids)
    return {
        identity: ContractRow(parse_record(facts, Contract, where=f"contract {identity} in the history"), version)
        for identity, version, facts in rows
    }


def contracts_measured(history: History, since: str) -> dict[int, list[tuple[str, str]]]:
    """Which contracts of each size had sessions since a night: (night, contract) pairs in order, by size."""
    rows = history.connection.execute(
        "SELECT DISTINCT s.night, s.contract, c.size FROM sessions s JOIN contracts c ON c.id = s.contract"
        " WHERE s.night >= ? ORDER BY s.night, c.version",
        (since,),
    )
    found: dict[int, list[tuple[str, str]]] = {}
    for night, contract, size in rows:
        found.setdefault(size, []).append((night, contract))
    return found


def median_step(history: History, contract: str, form: str, tier: str = "few") -> float | None:
    """What a form's step takes by history, in seconds: the median over its last nights; ``None`` without any."""
    points = points_of(history, Series(contract, form, tier), nights=10)
    return median(point.step_s for point in points) if points else None


def durations(history: History, contracts: Sequence[str]) -> dict[Place, float]:
    """How long sessions took, in seconds: the median of the last five that were measured, by place."""
    rows = history.connection.execute(
        "SELECT contract, form, window, duration_s FROM (SELECT contract, form, window, duration_s, row_number() OVER"
        " (PARTITION BY contract, form, window ORDER BY started_at DESC) AS age FROM sessions WHERE contract IN"
        f" ({_marks(contracts)}) AND duration_s IS NOT NULL AND status = 'measured') WHERE age <= ?",
        (*contracts, _DURATIONS),
    )
    found: dict[Place, list[float]] = {}
    for contract, form, window, duration_s in rows:
        found.setdefault(Place(contract, form, window), []).append(duration_s)
    return {place: median(taken) for place, taken in found.items()}


def reruns(history: History, contracts: Sequence[str]) -> Iterator[tuple[Place, Recorded, Recorded, int, int]]:
    """Sessions asked for again: place, the session before and the new one, and both row ids, oldest first."""
    rows = history.connection.execute(
        "SELECT contract, form, window, generation, night, status, reason, started_at, duration_s, id FROM sessions"
        f" WHERE contract IN ({_marks(contracts)}) AND status <> 'not_started' ORDER BY started_at, id",
        contracts,
    )
    last: dict[Place, tuple[Recorded, int]] = {}
    for row in rows:
        found, number = _recorded(row[:-1]), int(row[-1])
        earlier = last.get(found.place)
        if earlier and found.generation > earlier[0].generation:
            yield found.place, earlier[0], found, earlier[1], number
        last[found.place] = (found, number)


def values_of(history: History, sessions: Iterable[int]) -> dict[str, list[tuple[tuple[float, ...], float]]]:
    """Values in seconds and dispersion in percent of some sessions, by tier."""
    found: dict[str, list[tuple[tuple[float, ...], float]]] = {}
    ids = list(sessions)
    for tier, values, dispersion in history.connection.execute(
        "SELECT s.tier, c.values_s, c.dispersion_pct FROM cells c JOIN series s ON s.id = c.series"
        f" WHERE c.session IN ({_marks(ids)}) ORDER BY c.session",
        ids,
    ):
        found.setdefault(tier, []).append((tuple(json.loads(values)), dispersion))
    return found


def surroundings_at(history: History, sessions: Iterable[int]) -> tuple[Surroundings, ...]:
    """The surroundings of some sessions."""
    ids = list(sessions)
    rows = history.connection.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id IN ({_marks(ids)}) ORDER BY id", ids)
    return tuple(_surroundings(row) for row in rows)


def _point(night: str, rows: Iterable[sqlite3.Row | tuple[Any, ...]]) -> Point:
    latest = {row[1]: row for row in rows}
    windows = [latest[window] for window in sorted(latest)]
    return Point(
        night,
        tuple(value for row in windows for value in json.loads(row[2])),
        max(row[3] for row in windows),
        tuple(_surroundings(row[4:]) for row in windows),
    )


def _surroundings(row: Sequence[Any]) -> Surroundings:
    return Surroundings(row[0], row[1], row[2], row[3], json.loads(row[4]))


def _recorded(row: Sequence[Any]) -> Recorded:
    return Recorded(Place(row[0], row[1], row[2]), *row[3:])


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
