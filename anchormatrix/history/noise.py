"""The noise between server starts on this host, by what earlier nights measured."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import variance
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.history.store import History, read_history
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.contract import Contract
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.store.codec import parse_record

MOST_FREEDOM = 20
LEAST_FREEDOM = 6
_LEAST_REPEATS = 3  # a start with fewer is none, as for the selection itself


@dataclass(frozen=True)
class Before:
    """Which sessions are old enough to count: those of nights before ``night``, or those begun before ``moment``.

    ``moment`` is UTC as in the history. Empty text sets no limit.
    """

    night: str = ""
    moment: str = ""


def start_noise(file: Path | str, contract: Contract, before: Before) -> StartNoise | None:
    """How far starts of one form differ under contracts like this one; None while too little is known.

    Pooled over forms and nights is the variance of log(step), step the median of a start's anchor repeats, among the
    starts of one form under one contract in one night: neither a drift over nights nor another version is in it. The
    newest nights count until they give ``MOST_FREEDOM`` degrees of freedom, so that a long past never outweighs what is
    measured now. Alike are contracts of the same host, device model and card count; where these give fewer than
    ``LEAST_FREEDOM``, all contracts of the host are.

    An estimate is a comfort: what is wrong with a history is told where it is written.
    """
    try:
        with read_history(file) as history:
            if history is None:
                return None
            host = _contracts_of_host(history, contract.host)
            size = contract.size, contract.device_model
            alike = [name for name, found in host.items() if found == size]
            return _pooled(history, alike, before) or _pooled(history, list(host), before)
    except InputError:
        return None


def _contracts_of_host(history: History, host: str) -> dict[str, tuple[int, str]]:
    """Card count and device model of every contract of a host, by id."""
    rows = history.connection.execute("SELECT facts FROM contracts")
    known = [parse_record(facts, Contract, where="a contract in the history") for (facts,) in rows]
    return {found.id: (found.size, found.device_model) for found in known if found.host == host}


def _pooled(history: History, contracts: Sequence[str], before: Before) -> StartNoise | None:
    freedom, squares = 0, 0.0
    for _, rows in itertools.groupby(_starts(history, contracts, before), key=lambda row: row[0]):
        for steps in _same_form(rows):
            freedom += len(steps) - 1
            squares += variance(steps) * (len(steps) - 1)
        if freedom >= MOST_FREEDOM:
            break
    if freedom < LEAST_FREEDOM:
        return None
    dof = min(freedom, MOST_FREEDOM)
    return StartNoise(sd_pct=round(100 * math.sqrt(squares / freedom), 3), dof=dof, from_history=dof)


def _same_form(night: Iterable[Sequence[Any]]) -> Iterator[list[float]]:
    """log(step) of the starts of one form under one contract in one night, where there are at least two."""
    for _, rows in itertools.groupby(night, key=lambda row: row[1:4]):
        steps = [math.log(step_s) for *_, step_s, values in rows if len(json.loads(values)) >= _LEAST_REPEATS]
        if len(steps) > 1:
            yield steps


def _starts(history: History, contracts: Sequence[str], before: Before) -> Iterator[Sequence[Any]]:
    """Night, contract, form, generation, median and repeats of every measured session, newest night first."""
    return history.connection.execute(
        "SELECT x.night, x.contract, x.form, x.generation, c.step_s, c.values_s FROM sessions x"
        " JOIN cells c ON c.session = x.id JOIN series s ON s.id = c.series"
        f" WHERE x.contract IN ({','.join('?' * len(contracts))}) AND x.status = 'measured' AND s.tier = ?"
        " AND (? = '' OR x.night < ?) AND (? = '' OR x.started_at < ?)"
        " ORDER BY x.night DESC, x.contract, x.form, x.generation",
        (*contracts, ANCHOR, before.night, before.night, before.moment, before.moment),
    )
