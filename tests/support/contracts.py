"""Contracts for tests, on cards that are all joined by UB unless links are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchormatrix.records.contract import Contract, StoredContract
from anchormatrix.store.codec import write_record


def contract_on(
    cards: Sequence[int], links: tuple[tuple[str, ...], ...] | None = None, *, one_domain: bool = True, **facts: Any
) -> Contract:
    """A contract on some cards, with short facts except as given."""
    joined = tuple(tuple("X" if a == b else "UB" for b in cards) for a in cards)
    short = {"host": "h", "device_model": "d", "driver": "1", "toolkit": "1", "framework": "f"}
    given = {**short, "framework_version": "1", "workload": {}, "tiers": {}, **facts}
    return Contract(cards=tuple(cards), links=links or joined, one_domain=one_domain, **given)


def with_facts(contract: Contract, **facts: Any) -> Contract:
    """The contract with some facts changed."""
    return Contract(**{**contract.facts, **facts})


def store_contract(results: Path, contract: Contract, version: int = 1) -> None:
    """Write ``contract.json`` of a contract into a results folder."""
    stored = StoredContract(**contract.facts, version=version, reason="test")
    write_record(results / contract.id / "contract.json", stored)
