"""The plan of a run: the forms of every contract, why others are left out, its sessions.

Decided once, from the configuration and the live host, and given to every command as a file.
"""

from __future__ import annotations

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.contract import GroupCondition


class PlannedSession(Record, frozen=True, kw_only=True):
    """One serving session: a form in a window, from 1."""

    form: str
    window: int


class RuledOut(Record, frozen=True, kw_only=True):
    """A form that is not measured, with the reason a person can check.

    ``source`` is whose rule it is: the engine with the place in it, ``model``, ``memory gate``, ``configuration`` or
    ``matrix.most_forms``.
    """

    form: str
    reason: str
    source: str


class ContractPlan(Record, frozen=True, kw_only=True):
    """What is measured under one contract.

    ``state`` is the health and occupancy of its cards as one word; ``card_gb`` the memory of its smallest card in
    10⁹ bytes, None when unknown, and ``memory_unchecked`` says then that no form was held against it. ``forms`` are in
    the order of the first window, ``sessions`` in the order they run. ``noise`` is how far server starts differ on
    cards like these, by history; None when too little is known. ``engine_version`` is what the host told.
    """

    id: str
    size: int
    rank: int
    state: GroupCondition
    card_gb: float | None
    memory_unchecked: str = ""
    forms: tuple[str, ...]
    excluded: tuple[RuledOut, ...]
    windows: int
    sessions: tuple[PlannedSession, ...]
    noise: StartNoise | None = None
    engine_version: str = ""


class RunPlan(FileRecord, frozen=True, kw_only=True):
    """``results/.run/plan-<digest>.json``: the contracts of a run, those of one size best first.

    ``history_unused`` is why the history could not be read, so that noise and durations are unknown; mostly empty.
    """

    contracts: tuple[ContractPlan, ...]
    history_unused: str = ""

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person must know of the plan."""
        return (f"history is not used: {self.history_unused}",) if self.history_unused else ()

    def of_size(self, size: int) -> tuple[ContractPlan, ...]:
        """The contracts that a size may be measured under, best first."""
        return tuple(contract for contract in self.contracts if contract.size == size)

    def find(self, contract_id: str) -> ContractPlan | None:
        """The plan of a contract, or None for one that is not a current one."""
        return next((contract for contract in self.contracts if contract.id == contract_id), None)

    def of(self, contract_id: str) -> ContractPlan:
        """The plan of a contract. Raises :class:`InputError` for one that is not a current one."""
        found = self.find(contract_id)
        if found is None:
            raise InputError(
                f"{contract_id} is not a contract of the host as it was planned for",
                where="plan",
                expected=f"one of {', '.join(sorted(contract.id for contract in self.contracts)) or 'none'}",
            )
        return found
