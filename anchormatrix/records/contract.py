"""The contract: everything that must stay fixed for two numbers to be comparable, and its identity."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.host import Topology

_ID_DIGITS = 10


class GroupCondition(enum.StrEnum):
    """Health and occupancy of a group's cards as one word; another word makes a new smoke necessary."""

    FIT = "fit"
    WARNING = "warning"
    BUSY = "busy"


class Contract(Record, frozen=True, kw_only=True):
    """What is fixed while numbers are compared. Two contracts with the same facts have the same ``id``.

    The id is ``c<cards>-<first 10 hex digits of the SHA-256 of the canonical JSON>``. ``links`` is the link matrix of
    the group in the order of ``cards``; ``link_class`` is the links inside the group as one word, such as ``UB`` or
    ``SYS+UB``. ``workload`` and ``tiers`` come from the configuration; versions come from the live host. The first
    three fields follow from the facts and are not to be given. Raises ``ValueError`` for an id that is not theirs.
    """

    id: str = ""
    size: int = 0
    link_class: str = ""
    cards: tuple[int, ...]
    device_model: str
    driver: str
    framework: str
    framework_version: str
    host: str
    links: tuple[tuple[str, ...], ...]
    one_domain: bool
    tiers: dict[str, int]
    toolkit: str
    workload: dict[str, Any]

    def __post_init__(self) -> None:
        for name in ("tiers", "workload"):
            msgspec.structs.force_setattr(self, name, canonical_values(getattr(self, name)))
        size = len(self.cards)
        if [len(row) for row in self.links] != [size] * size:
            raise ValueError(f"the link matrix is not {size} × {size}")
        found = f"c{size}-{hashlib.sha256(self.canonical.encode()).hexdigest()[:_ID_DIGITS]}"
        if self.id not in ("", found):
            raise ValueError(f"says id {self.id!r} but its facts give {found!r}")
        msgspec.structs.force_setattr(self, "id", found)
        msgspec.structs.force_setattr(self, "size", size)
        links = "+".join(self.topology.group_links(self.cards))
        msgspec.structs.force_setattr(self, "link_class", links or "single")

    @property
    def mixed_models(self) -> str:
        """That the group holds cards of several models, in words; empty for a group of one."""
        models = self.device_model.split("+")
        return f"mixes models {' and '.join(models)}" if len(models) > 1 else ""

    @property
    def facts(self) -> dict[str, Any]:
        """What is fixed, by name: all that the identity rests on and nothing else."""
        return {name: getattr(self, name) for name in FACTS}

    @property
    def canonical(self) -> str:
        """Canonical JSON of the facts: sorted keys, no white space, ``5.0`` written as ``5``."""
        return json.dumps(canonical_values(self.facts), separators=(",", ":"), ensure_ascii=True)

    @property
    def topology(self) -> Topology:
        """The group's own topology."""
        order = sorted(range(len(self.cards)), key=lambda i: self.cards[i])
        return Topology(
            tuple(self.cards[i] for i in order), tuple(tuple(self.links[i][j] for j in order) for i in order)
        )


FACTS = Contract.__struct_fields__[3:]


class StoredContract(FileRecord, Contract, frozen=True, kw_only=True):
    """``contract.json``, beside everything measured under it. ``reason``: why its group was chosen."""

    version: int
    reason: str


class ListedContract(Contract, frozen=True, kw_only=True):
    """A contract that a run may measure. Rank 0 is the choice of its size; the others replace it if its smoke fails."""

    version: int
    rank: int
    reason: str
    state: GroupCondition


class RejectedGroup(Record, frozen=True):
    """A group that is not used, and why. Empty ``cards``: the reason speaks of several groups at once."""

    size: int
    cards: tuple[int, ...]
    reason: str


class SizeWithoutGroup(Record, frozen=True):
    """A card count that has no group at all, and why."""

    size: int
    reason: str


class ContractList(FileRecord, frozen=True, kw_only=True):
    """``contracts.json``: the contracts of a run, the groups not used, and the sizes that have no group at all."""

    contracts: tuple[ListedContract, ...]
    rejected: tuple[RejectedGroup, ...] = ()
    unavailable: tuple[SizeWithoutGroup, ...] = ()

    def of_size(self, size: int) -> tuple[ListedContract, ...]:
        """The candidates of a size, best first."""
        return tuple(contract for contract in self.contracts if contract.size == size)


class ChangedFact(Record, frozen=True):
    """A fact in which two contracts differ; nested names are dotted, as in ``workload.seed``."""

    field: str
    before: Any
    after: Any


class LedgerEntry(FileRecord, frozen=True, kw_only=True):
    """One line of ``contracts.jsonl``: a contract became the current one of its size.

    Raises ``ValueError`` when the line says something else than the contract in it.
    """

    id: str
    size: int
    version: int
    cards: tuple[int, ...]
    changed: tuple[ChangedFact, ...]
    when: str
    why: str
    contract: Contract

    def __post_init__(self) -> None:
        for name in ("id", "size", "cards"):
            said, fact = getattr(self, name), getattr(self.contract, name)
            if said != fact:
                raise ValueError(f"says {name} {said!r} but its contract {fact!r}")


def changed_facts(before: Contract, after: Contract) -> tuple[ChangedFact, ...]:
    """What changed between two contracts, fact by fact."""
    old, new = _flat(json.loads(before.canonical)), _flat(json.loads(after.canonical))
    return tuple(
        ChangedFact(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def canonical_values(value: Any) -> Any:
    """JSON values of which equal ones are written alike: a whole number without a point, a list for every sequence."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: canonical_values(item) for key, item in sorted((str(key), item) for key, item in value.items())}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [canonical_values(item) for item in value]
    return value


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
