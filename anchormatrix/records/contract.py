"""The contract: everything that must stay fixed for two numbers to be comparable, and its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.records.host import Topology

_ID_DIGITS = 10


@dataclass(frozen=True)
class Contract:
    """What is fixed while numbers are compared. Two contracts with the same facts have the same ``id``.

    ``links`` is the link matrix of the group in the order of ``cards``; ``workload`` and ``tiers`` come from the
    configuration; versions come from the live host.
    """

    host: str
    cards: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]
    one_domain: bool
    device_model: str
    driver: str
    toolkit: str
    framework: str
    framework_version: str
    workload: Mapping[str, Any]
    tiers: Mapping[str, int]

    @property
    def size(self) -> int:
        """Number of cards."""
        return len(self.cards)

    @cached_property
    def canonical(self) -> str:
        """Canonical JSON: sorted keys, no white space, ``5.0`` written as ``5``."""
        return json.dumps(_canonical(asdict(self)), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @cached_property
    def id(self) -> str:
        """``c<cards>-<first 10 hex digits of the SHA-256 of the canonical JSON>``."""
        return f"c{self.size}-{hashlib.sha256(self.canonical.encode()).hexdigest()[:_ID_DIGITS]}"

    @property
    def topology(self) -> Topology:
        """The group's own topology."""
        order = sorted(range(self.size), key=lambda i: self.cards[i])
        return Topology(
            tuple(self.cards[i] for i in order), tuple(tuple(self.links[i][j] for j in order) for i in order)
        )

    @property
    def link_class(self) -> str:
        """The links inside the group as one word, such as ``UB`` or ``SYS+UB``: comparable groups share it."""
        return "+".join(self.topology.group_links(self.cards)) or "single"

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain JSON values, with ``id`` and ``size`` for readers."""
        return {"id": self.id, "size": self.size, "link_class": self.link_class, **json.loads(self.canonical)}


def contract_from_dict(values: Mapping[str, Any]) -> Contract:
    """Rebuild a contract from :meth:`Contract.as_dict`.

    Raises :class:`InputError` when a fact is missing or the stored id does not match the facts.
    """
    try:
        contract = Contract(
            host=values["host"],
            cards=tuple(values["cards"]),
            links=tuple(tuple(row) for row in values["links"]),
            one_domain=values["one_domain"],
            device_model=values["device_model"],
            driver=values["driver"],
            toolkit=values["toolkit"],
            framework=values["framework"],
            framework_version=values["framework_version"],
            workload=dict(values["workload"]),
            tiers=dict(values["tiers"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"not a contract ({error!r})", where="contract", todo="delete its folder and run again"
        ) from None
    if contract.id != values.get("id"):
        raise InputError(
            f"contract says id {values.get('id')!r} but its facts give {contract.id!r}",
            where="contract",
            todo="the file was edited or is from another version: delete its folder and run again",
        )
    return contract


def changed_fields(before: Contract, after: Contract) -> list[dict[str, Any]]:
    """What changed between two contracts, field by field: ``[{"field", "before", "after"}]``, nested keys dotted."""
    old, new = _flat(json.loads(before.canonical)), _flat(json.loads(after.canonical))
    return [
        {"field": key, "before": old.get(key), "after": new.get(key)}
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_canonical(item) for item in value]
    return value


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
