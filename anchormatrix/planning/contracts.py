"""From one reading of the live host to the contracts of a run, and the ledger that remembers them."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchormatrix.errors import InputError, quoted_line
from anchormatrix.planning.groups import Candidate, Rejection, Resolution, resolve_groups
from anchormatrix.records.contract import Contract, changed_fields, contract_from_dict
from anchormatrix.records.host import Live
from anchormatrix.records.settings import Settings
from anchormatrix.store.files import SCHEMA, parse_json


@dataclass(frozen=True)
class Planned:
    """A contract that a run may measure. Rank 0 is the choice of its size; the others replace it if its smoke fails."""

    contract: Contract
    version: int
    rank: int
    reason: str
    state: str


@dataclass(frozen=True)
class Plan:
    """The contracts of a run, the groups not used, and the sizes that have no group at all."""

    contracts: tuple[Planned, ...]
    rejected: tuple[Rejection, ...]
    unavailable: tuple[tuple[int, str], ...]

    def of_size(self, size: int) -> tuple[Planned, ...]:
        """The candidates of a size, best first."""
        return tuple(planned for planned in self.contracts if planned.contract.size == size)

    def as_dict(self) -> dict[str, Any]:
        """The plan as ``contracts.json`` holds it."""
        return {
            "contracts": [
                {**p.contract.as_dict(), "version": p.version, "rank": p.rank, "reason": p.reason, "state": p.state}
                for p in self.contracts
            ],
            "rejected": [dataclasses.asdict(item) for item in self.rejected],
            "unavailable": [{"size": size, "reason": reason} for size, reason in self.unavailable],
        }


def make_plan(live: Live, settings: Settings, ledger: Sequence[Mapping[str, Any]]) -> Plan:
    """Choose groups for every configured size and give each its contract and version."""
    resolution = resolve_groups(
        live.state,
        settings.matrix.sizes,
        health=settings.health,
        groups=settings.groups,
        current=_current_groups(ledger),
    )
    contracts: list[Planned] = []
    for size in settings.matrix.sizes:
        for rank, candidate in enumerate(resolution.candidates[size]):
            contract = _contract(live, settings, candidate)
            contracts.append(
                Planned(contract, version_of(contract, ledger, rank), rank, candidate.reason, candidate.state)
            )
    return Plan(tuple(contracts), resolution.rejected, _without_group(settings.matrix.sizes, resolution))


def version_of(contract: Contract, ledger: Sequence[Mapping[str, Any]], ahead: int = 0) -> int:
    """A contract's version number among those of its card count: by first appearance in the ledger, else the next.

    ``ahead`` is the number of new contracts of the size that would come before this one.
    """
    known: list[str] = []
    for row in ledger:
        if row["size"] == contract.size and row["id"] not in known:
            known.append(row["id"])
    return known.index(contract.id) + 1 if contract.id in known else len(known) + 1 + ahead


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Read the append-only ledger; a missing file is an empty ledger.

    A last line without its newline was cut off while being written and is left out; any other unreadable line raises
    :class:`InputError` with its number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    rows = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            rows.append(ledger_row(parse_json(line)))
        except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
            raise InputError(
                f"not a ledger entry ({error}): {quoted_line(line)}",
                where=f"{path}:{number}",
                todo="move the file aside; versions are counted anew",
            ) from None
    return rows


def ledger_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Check a ledger row against the contract in it. Raises :class:`InputError`, or what a wrong type raises."""
    contract = contract_from_dict(row["contract"])
    facts = {"id": contract.id, "size": contract.size, "cards": list(contract.cards)}
    for key, fact in facts.items():
        if row[key] != fact:
            raise InputError(f"says {key} {row[key]!r} but its contract {fact!r}")
    return dict(row)


def ledger_entry(
    planned: Planned, ledger: Sequence[Mapping[str, Any]], *, when: str, why: str
) -> dict[str, Any] | None:
    """The ledger's next row when a contract becomes its size's current one; ``None`` when it already is."""
    contract = planned.contract
    earlier = [row for row in ledger if row["size"] == contract.size]
    if earlier and earlier[-1]["id"] == contract.id:
        return None
    changed = changed_fields(contract_from_dict(earlier[-1]["contract"]), contract) if earlier else []
    return {
        "schema": SCHEMA,
        "id": contract.id,
        "size": contract.size,
        "version": version_of(contract, ledger),
        "cards": list(contract.cards),
        "changed": changed,
        "when": when,
        "why": why,
        "contract": contract.as_dict(),
    }


def append_ledger(path: Path, planned: Sequence[Planned], *, when: str, why: str) -> list[dict[str, Any]]:
    """Append a row for every contract that becomes current, under a lock; returns the rows added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _drop_torn_line(stream)
        ledger = read_ledger(path)
        added: list[dict[str, Any]] = []
        for item in planned:
            entry = ledger_entry(item, [*ledger, *added], when=when, why=why)
            if entry is not None:
                added.append(entry)
        text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in added)
        stream.write(text.encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())
    return added


def _drop_torn_line(stream: Any) -> None:
    """Remove what a killed writer left after the last whole line, so that the next row starts on its own line."""
    stream.seek(0)
    content = stream.read()
    if content and not content.endswith(b"\n"):
        stream.truncate(content.rfind(b"\n") + 1)


def _current_groups(ledger: Sequence[Mapping[str, Any]]) -> dict[int, tuple[int, ...]]:
    return {row["size"]: tuple(row["cards"]) for row in ledger}


def _contract(live: Live, settings: Settings, candidate: Candidate) -> Contract:
    topology, cards = live.state.topology, candidate.cards
    models = sorted({live.state.card(card).name for card in cards})
    return Contract(
        host=settings.host.alias,
        cards=cards,
        links=tuple(tuple(topology.link(a, b) for b in cards) for a in cards),
        one_domain=candidate.one_domain,
        device_model="+".join(models),
        driver=live.stack.driver,
        toolkit=live.stack.toolkit,
        framework=live.stack.framework,
        framework_version=live.stack.framework_version,
        workload={
            "model": settings.engine.model,
            **dataclasses.asdict(settings.workload),
            "engine_args": list(settings.engine.extra_args),
            "engine_env": dict(settings.engine.env),
        },
        tiers=dict(settings.matrix.tiers),
    )


def _without_group(sizes: Sequence[int], resolution: Resolution) -> tuple[tuple[int, str], ...]:
    return tuple((size, resolution.why_none(size)) for size in sizes if not resolution.candidates[size])
