"""The knowledge of the report: the facts of every current contract, and of the host they were measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from anchormatrix.planning.groups import SECOND_BEST, show
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.bandwidth import SizeSweep
from anchormatrix.records.conclusions.cells import ALL, Cell
from anchormatrix.records.conclusions.decision import Decision, SizeDecision
from anchormatrix.records.conclusions.gates import Gates
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import Contract, ContractList, LedgerEntry, ListedContract
from anchormatrix.records.host import HostHealth, Topology
from anchormatrix.records.outputs import Outputs
from anchormatrix.records.rerun import Rerun
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.records.smoke import FindingKind, Smoke, SmokeStatus
from anchormatrix.report.source import Part, Problem
from anchormatrix.store.sessions import TimedSession

T = TypeVar("T")
_OF_THE_GROUP = ("cards", "links", "one_domain", "host")


@dataclass(frozen=True)
class Measured:
    """Everything known of one current contract."""

    contract: ListedContract
    smoke: Part[Smoke]
    cells: Part[tuple[Cell, ...]]
    verdict: Part[Verdict]
    sessions: tuple[TimedSession, ...]
    attributions: Mapping[str, Part[Attribution]]
    gates: Part[Gates]
    bandwidth: Part[SizeSweep]
    outputs: Part[Outputs]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """Forms with at least one cell, one session or one reason, in the order of measuring."""
        named = [cell.form for cell in self.cells.value or ()]
        named += [timed.session.form for timed in self.sessions]
        if self.verdict.value:
            named += [entry.form for entry in self.verdict.value.did_not_run]
        return tuple(dict.fromkeys(named))

    def cell(self, form: str, tier: str, window: str = ALL) -> Cell | None:
        """One cell; nothing when it was not measured."""
        for cell in self.cells.value or ():
            if (cell.form, cell.tier, cell.window) == (form, tier, window):
                return cell
        return None

    def windows(self, form: str, tier: str) -> tuple[Cell, ...]:
        """The cells of a form and tier in each single window, in order."""
        found = [cell for cell in self.cells.value or () if (cell.form, cell.tier) == (form, tier)]
        return tuple(
            sorted((cell for cell in found if cell.window != ALL), key=lambda cell: (len(cell.window), cell.window))
        )

    def readable(self, form: str) -> bool:
        """Whether the cells of both tiers may be used, so that their ratio means something."""
        return all((cell := self.cell(form, tier)) is not None and cell.usable for tier in (FEW, ANCHOR))

    @property
    def measured_forms(self) -> tuple[str, ...]:
        """Forms with a number in at least one tier."""
        with_number = {cell.form for cell in self.cells.value or ()}
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
    limits: VerdictSettings
    topology: Part[Topology]
    health: Part[HostHealth]
    contracts: Part[ContractList]
    measured: tuple[Measured, ...]
    rejected: tuple[Measured, ...]
    ledger: tuple[LedgerEntry, ...]
    decision: Part[Decision]
    reruns: tuple[Rerun, ...]
    problems: tuple[Problem, ...]

    def decided(self, measured: Measured) -> SizeDecision | None:
        """What the selection stage decided on a contract."""
        sizes = self.decision.value.sizes.values() if self.decision.value else ()
        return next((one for one in sizes if one.contract == measured.contract.id), None)

    def of_size(self, size: int) -> Measured | None:
        """The current contract of a size."""
        return next((measured for measured in self.measured if measured.contract.size == size), None)

    def why_no_group(self, size: int) -> str:
        """Why a size has no contract."""
        if self.contracts.value is None:
            return self.contracts.missing
        reasons = [entry.reason for entry in self.contracts.value.unavailable if entry.size == size]
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
        if _passed(measured):
            return ()
        found = [cards for cards in self._residue if cards < set(measured.contract.cards)]
        return tuple(sorted(set().union(*found)))

    def note(self, measured: Measured) -> str:
        """What every row measured on a group carries."""
        damaged = self.damaged(measured)
        residue = f"holds cards {show(damaged)}, which are in the residue state" if damaged else ""
        return "; ".join(filter(None, (group_note(measured.contract), residue)))

    @property
    def residue(self) -> frozenset[int]:
        """Cards of groups found in the residue state that no group with a passed smoke holds."""
        passed = [set(one.contract.cards) for one in self.measured if _passed(one)]
        return frozenset(set().union(*self._residue) - set().union(*passed))

    @property
    def _residue(self) -> list[set[int]]:
        return [
            set(measured.contract.cards)
            for measured in self.rejected
            if (smoke := measured.smoke.value) and any(one.kind is FindingKind.RESIDUE for one in smoke.findings)
        ]

    @property
    def retired(self) -> tuple[LedgerEntry, ...]:
        """Ledger entries that are not current any more."""
        current = {measured.contract.id for measured in (*self.measured, *self.rejected)}
        return tuple(entry for entry in self.ledger if entry.id not in current)

    @property
    def measured_at(self) -> str:
        """When the newest session shown here ended; empty without any."""
        ended = [timed.session.finished_at for measured in self.measured for timed in measured.sessions]
        return max(filter(None, ended), default="")


def _smoke_words(measured: Measured) -> str:
    smoke = measured.smoke.value
    return "; ".join(finding.text for finding in smoke.findings) if smoke else measured.smoke.missing


def _passed(measured: Measured) -> bool:
    return measured.smoke.value is not None and measured.smoke.value.status is SmokeStatus.PASSED


def group_note(contract: Contract) -> str:
    """What every row measured on a group carries because of its links and the models of its cards."""
    return "; ".join(filter(None, ("" if contract.one_domain else SECOND_BEST, contract.mixed_models)))


def fixed_facts(contract: Contract) -> tuple[tuple[str, str], ...]:
    """What a contract fixes beside its group, as name and words; nested names are dotted."""
    return _pairs({name: value for name, value in contract.facts.items() if name not in _OF_THE_GROUP})


def words_of(value: object) -> str:
    """A value as words: lists with commas, figures without a tail of digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(words_of(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words_of(item)}" for key, item in value.items())
    return "nothing" if value is None else str(value)


def _pairs(values: Mapping[str, object], prefix: str = "") -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.extend(_pairs(value, f"{prefix}{key}."))
        else:
            found.append((f"{prefix}{key}", words_of(value) or "none"))
    return tuple(found)
