"""The knowledge of the report: the facts of every current contract, and of the host they were measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from anchormatrix.planning.groups import show
from anchormatrix.records.host import Topology
from anchormatrix.records.settings import ANCHOR, FEW
from anchormatrix.report.facts import (
    POOLED,
    CardState,
    Cell,
    Choices,
    ContractFacts,
    Contracts,
    Gates,
    LedgerEntry,
    Rerun,
    SessionRecord,
    SmokeResult,
    SweepRow,
    Verdict,
)
from anchormatrix.report.source import Part, Problem
from anchormatrix.report.step_breakdown import Anatomy


@dataclass(frozen=True)
class Measured:
    """Everything known of one current contract."""

    contract: ContractFacts
    smoke: Part[SmokeResult]
    cells: Part[tuple[Cell, ...]]
    verdict: Part[Verdict]
    sessions: tuple[SessionRecord, ...]
    anatomy: Mapping[str, Part[Anatomy]]
    gates: Part[Gates]
    bandwidth: Part[tuple[SweepRow, ...]]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """Forms with at least one cell, one session or one reason, in the order of measuring."""
        named = [cell.form for cell in self.cells.value or ()]
        named += [session.form for session in self.sessions]
        if self.verdict.value:
            named += [form for form, _ in self.verdict.value.did_not_run]
        return tuple(dict.fromkeys(named))

    def cell(self, form: str, tier: str, window: str = POOLED) -> Cell | None:
        """One cell; nothing when it was not measured."""
        for cell in self.cells.value or ():
            if (cell.form, cell.tier, cell.window) == (form, tier, window):
                return cell
        return None

    def windows(self, form: str, tier: str) -> tuple[Cell, ...]:
        """The cells of a form and tier in each single window, in order."""
        found = [cell for cell in self.cells.value or () if (cell.form, cell.tier) == (form, tier)]
        return tuple(
            sorted((cell for cell in found if cell.window != POOLED), key=lambda cell: (len(cell.window), cell.window))
        )

    def readable(self, form: str) -> bool:
        """Whether the cells of both tiers may be used, so that their ratio means something."""
        return all((cell := self.cell(form, tier)) is not None and cell.usable for tier in (FEW, ANCHOR))

    @property
    def measured_forms(self) -> tuple[str, ...]:
        """Forms with a number in at least one tier."""
        with_number = {cell.form for cell in self.cells.value or () if cell.step_s is not None}
        return tuple(form for form in self.forms if form in with_number)


@dataclass(frozen=True)
class Report:
    """The whole report before it is put into words."""

    title: str
    host: str
    model: str
    sizes: tuple[int, ...]
    tiers: Mapping[str, int]
    repeats: int
    windows: int
    dispersion_limit_pct: float
    drift_limit_pct: float
    noise_floor_pct: float
    window_drift_limit_pct: float
    workload: tuple[tuple[str, str], ...]
    topology: Part[Topology]
    cards: Part[tuple[CardState, ...]]
    versions: tuple[tuple[str, str], ...]
    contracts: Part[Contracts]
    measured: tuple[Measured, ...]
    rejected: tuple[Measured, ...]
    ledger: tuple[LedgerEntry, ...]
    choices: Part[Choices]
    reruns: tuple[Rerun, ...]
    problems: tuple[Problem, ...]

    def of_size(self, size: int) -> Measured | None:
        """The current contract of a size."""
        return next((measured for measured in self.measured if measured.contract.size == size), None)

    def why_no_group(self, size: int) -> str:
        """Why a size has no contract."""
        if self.contracts.value is None:
            return self.contracts.missing
        reasons = [refusal.reason for refusal in self.contracts.value.unavailable if refusal.size == size]
        reasons += [
            f"{measured.contract.id} failed its smoke: {_smoke_words(measured)}"
            for measured in self.rejected
            if measured.contract.size == size
        ]
        return "; ".join(reasons) or "no contract of this size was resolved"

    def damaged(self, measured: Measured) -> tuple[int, ...]:
        """Cards of a group that the smokes of smaller groups found in the residue state; every card may say OK.

        A group that holds such cards is as slow as they are; only a smoke of its own that passed says otherwise, not
        one that had nothing to be compared with.
        """
        if measured.smoke.value and measured.smoke.value.passed:
            return ()
        found = [cards for cards in self._residue if cards < set(measured.contract.cards)]
        return tuple(sorted(set().union(*found)))

    def note(self, measured: Measured) -> str:
        """What every row measured on a group carries."""
        damaged = self.damaged(measured)
        residue = f"holds cards {show(damaged)}, which are in the residue state" if damaged else ""
        return "; ".join(filter(None, (measured.contract.note, residue)))

    @property
    def residue(self) -> frozenset[int]:
        """Cards of groups found in the residue state that no group with a passed smoke holds."""
        passed = [set(one.contract.cards) for one in self.measured if one.smoke.value and one.smoke.value.passed]
        return frozenset(set().union(*self._residue) - set().union(*passed))

    @property
    def _residue(self) -> list[set[int]]:
        return [
            set(measured.contract.cards)
            for measured in self.rejected
            if (smoke := measured.smoke.value) and any(kind == "residue" for kind, _ in smoke.findings)
        ]

    @property
    def retired(self) -> tuple[LedgerEntry, ...]:
        """Ledger entries that are not current any more."""
        current = {measured.contract.id for measured in (*self.measured, *self.rejected)}
        return tuple(entry for entry in self.ledger if entry.id not in current)

    @property
    def measured_at(self) -> str:
        """When the newest session shown here ended; empty without any."""
        return max((session.finished_at for measured in self.measured for session in measured.sessions), default="")


def _smoke_words(measured: Measured) -> str:
    smoke = measured.smoke.value
    return "; ".join(text for _, text in smoke.findings) if smoke else measured.smoke.missing
