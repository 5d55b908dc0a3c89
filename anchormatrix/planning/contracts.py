"""The contracts of a run, from one reading of the live host, and the ledger that remembers them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from anchormatrix.planning.groups import Candidate, Resolution, resolve_groups
from anchormatrix.records.contract import (
    Contract,
    ContractList,
    LedgerEntry,
    ListedContract,
    SizeWithoutGroup,
    StoredContract,
    changed_facts,
)
from anchormatrix.records.host import HostProbe
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import line_text, read_lines
from anchormatrix.store.ledger import append_lines


def list_contracts(probe: HostProbe, settings: Settings, ledger: Sequence[LedgerEntry]) -> ContractList:
    """Choose groups for every configured size and give each its contract and version."""
    resolution = resolve_groups(
        probe.state,
        settings.matrix.sizes,
        health=settings.health,
        groups=settings.groups,
        current=current_groups(ledger),
    )
    contracts: list[ListedContract] = []
    for size in settings.matrix.sizes:
        for rank, candidate in enumerate(resolution.candidates[size]):
            contract = _contract(probe, settings, candidate)
            contracts.append(
                ListedContract(
                    **contract.facts,
                    version=version_of(contract, ledger, rank),
                    rank=rank,
                    reason=candidate.reason,
                    state=candidate.state,
                )
            )
    return ContractList(
        contracts=tuple(contracts),
        rejected=resolution.rejected,
        unavailable=_without_group(settings.matrix.sizes, resolution),
    )


def stored_contract(listed: ListedContract, ledger: Sequence[LedgerEntry]) -> StoredContract:
    """A contract's own file, with the version that the ledger gives it."""
    return StoredContract(**listed.facts, version=version_of(listed, ledger), reason=listed.reason)


def version_of(contract: Contract, ledger: Sequence[LedgerEntry], ahead: int = 0) -> int:
    """A contract's version number among those of its card count: by first appearance in the ledger, else the next.

    ``ahead`` is the number of new contracts of the size that would come before this one.
    """
    known = list(dict.fromkeys(entry.id for entry in ledger if entry.size == contract.size))
    return known.index(contract.id) + 1 if contract.id in known else len(known) + 1 + ahead


def read_ledger(path: Path, *, sound: bool = False) -> list[LedgerEntry]:
    """Read ``contracts.jsonl``; a missing file is an empty ledger.

    Raises :class:`InputError` naming the line, unless only the ``sound`` ones are asked for.
    """
    return read_lines(path, LedgerEntry, todo="move the file aside; versions are counted anew", sound=sound)


def current_groups(ledger: Sequence[LedgerEntry]) -> dict[int, tuple[int, ...]]:
    """The cards of every size's current contract."""
    return {entry.size: entry.cards for entry in ledger}


def append_ledger(path: Path, contracts: Sequence[Contract], *, when: str, why: str) -> list[LedgerEntry]:
    """Append an entry for every contract that becomes its size's current one; returns the entries added."""
    added: list[LedgerEntry] = []

    def lines() -> list[str]:
        ledger = read_ledger(path)
        for contract in contracts:
            entry = _next_entry(contract, [*ledger, *added], when=when, why=why)
            if entry is not None:
                added.append(entry)
        return [line_text(entry) for entry in added]

    append_lines(path, lines)
    return added


def _next_entry(contract: Contract, ledger: Sequence[LedgerEntry], *, when: str, why: str) -> LedgerEntry | None:
    """The ledger's entry for a contract that becomes its size's current one; ``None`` when it already is."""
    last = next((entry for entry in reversed(ledger) if entry.size == contract.size), None)
    if last and last.id == contract.id:
        return None
    return LedgerEntry(
        id=contract.id,
        size=contract.size,
        version=version_of(contract, ledger),
        cards=contract.cards,
        changed=changed_facts(last.contract, contract) if last else (),
        when=when,
        why=why,
        contract=Contract(**contract.facts),
    )


def _contract(probe: HostProbe, settings: Settings, candidate: Candidate) -> Contract:
    topology, cards = probe.state.topology, candidate.cards
    models = sorted({probe.state.card(card).name for card in cards})
    return Contract(
        host=settings.host.alias,
        cards=cards,
        links=tuple(tuple(topology.link(a, b) for b in cards) for a in cards),
        one_domain=candidate.one_domain,
        device_model="+".join(models),
        driver=probe.stack.driver,
        toolkit=probe.stack.toolkit,
        framework=probe.stack.framework,
        framework_version=probe.stack.framework_version,
        workload={
            "model": settings.engine.model,
            **msgspec.to_builtins(settings.workload),
            "engine_args": list(settings.engine.extra_args),
            "engine_env": dict(settings.engine.env),
            **({"engine_options": dict(settings.engine.options)} if settings.engine.options else {}),
        },
        tiers=msgspec.structs.asdict(settings.matrix.tiers),
    )


def _without_group(sizes: Sequence[int], resolution: Resolution) -> tuple[SizeWithoutGroup, ...]:
    return tuple(SizeWithoutGroup(size, resolution.why_none(size)) for size in sizes if not resolution.candidates[size])
