"""Cards that other smokes of a run found in the residue state: a group with any of them is as slow as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract, ContractList, GroupCondition, StoredContract
from anchormatrix.records.smoke import FindingKind, Smoke, SmokeStatus
from anchormatrix.store.codec import read_record


@dataclass(frozen=True)
class Damaged:
    """A smaller group whose smoke found the residue state: its contract and its cards."""

    contract: str
    cards: tuple[int, ...]

    @property
    def text(self) -> str:
        """The group and the smoke that says so."""
        return f"cards {show(self.cards)} are in the residue state (smoke of {self.contract})"


def damaged_within(contract: Contract, results: Path, *, night: str | None = None) -> tuple[Damaged, ...]:
    """The groups inside a contract's group that their own smokes rejected for residue, by contract.

    A smoke counts while the health and occupancy of its cards are those it was made in, as ``contracts.json`` lists
    them, and, with ``night``, when it was made in that night. Files that cannot be read say nothing.
    """
    states = _states(results / "contracts.json")
    found = []
    for path in sorted(results.glob("c*/smoke.json")):
        try:
            smoke = read_record(path, Smoke)
            other = read_record(path.parent / "contract.json", StoredContract)
        except InputError:
            continue
        current = states is None or states.get(other.id) == smoke.state
        tonight = night is None or smoke.night == night
        if set(other.cards) < set(contract.cards) and _found_residue(smoke) and current and tonight:
            found.append(Damaged(other.id, other.cards))
    return tuple(found)


def _found_residue(smoke: Smoke) -> bool:
    kinds = {finding.kind for finding in smoke.findings}
    return smoke.status is SmokeStatus.REJECTED and FindingKind.RESIDUE in kinds


def _states(path: Path) -> dict[str, GroupCondition] | None:
    """Health and occupancy of every legal group by contract; None when they are not listed."""
    try:
        return {contract.id: contract.state for contract in read_record(path, ContractList).contracts}
    except InputError:
        return None
