"""The host at this moment: the scenario, what its events have changed by now, and what the state directory says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from virtualhost.host.faults import Span, ToolFault
from virtualhost.host.scenario import Scenario, Tenant
from virtualhost.host.state import HostState, Job


@dataclass(frozen=True)
class LiveProcess:
    """A process that the vendor's tool shows on a card."""

    pid: int
    name: str
    memory_mb: int


class LiveHost:
    """Cards, links, health and occupancy now. Reads the state once; make a new one to look again."""

    def __init__(self, scenario: Scenario, state: HostState) -> None:
        self.scenario = scenario
        self.jobs: tuple[Job, ...] = state.jobs(residue=scenario.residue.after_sigkill)
        self._record = state.snapshot()

    def is_active(self, when: Span) -> bool:
        """Whether a span of the scenario covers the present."""
        return when.active(self._record.sessions, self._record.session_requests, self._record.tool_calls)

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """The tenants that are on the host now."""
        return tuple(tenant for tenant in self.scenario.tenants if self.is_active(tenant.when))

    def health(self, card: int) -> str:
        """What the tool says of a card's health; residue never shows here."""
        for change in self.scenario.health:
            if card in change.cards and self.is_active(change.when):
                return change.state
        return "OK"

    def slowdown(self, cards: tuple[int, ...]) -> float:
        """How many times slower a group is now: residue on any card or a tenant on one, times the level."""
        residue = self.scenario.residue
        level = prod(shift.factor for shift in self.scenario.timing.level_shifts if self.is_active(shift.when))
        factors = [1.0]
        if set(cards) & ({*residue.cards} | {*self._record.residue}):
            factors.append(residue.factor)
        factors += [tenant.slowdown for tenant in self.tenants if set(cards) & set(tenant.cards)]
        return max(factors) * level

    def processes(self, card: int) -> tuple[LiveProcess, ...]:
        """Everything that holds memory on a card: ranks of running servers, then tenants."""
        ranks = [
            LiveProcess(rank.pid, self.scenario.serving.process_name, rank.memory_mb)
            for job in self.jobs
            for rank in job.ranks
            if rank.card == card
        ]
        tenants = [
            LiveProcess(tenant.pid + tenant.cards.index(card), tenant.name, tenant.memory_mb)
            for tenant in self.tenants
            if card in tenant.cards
        ]
        return (*ranks, *tenants)

    def memory_used_mb(self, card: int, *, besides: Sequence[int] = ()) -> int:
        """Device memory in use on a card: the driver's static share and all processes but those of ``besides``."""
        # a few MB of difference between cards, as real ones have
        static = self.scenario.cards.driver_memory_mb + card * 7 % 5
        return static + sum(process.memory_mb for process in self.processes(card) if process.pid not in besides)

    def links(self) -> dict[tuple[int, int], str]:
        """The link between every two visible cards, ``X`` on the diagonal, with the changes that are in effect."""
        links = self.scenario.link_matrix()
        for change in self.scenario.link_changes:
            if self.is_active(change.when):
                a, b = change.between
                links[a, b] = links[b, a] = change.link
        return links

    def tool_fault(self, command: str) -> ToolFault | None:
        """The fault of the vendor's tool that concerns this command now."""
        for fault in self.scenario.tool_faults:
            if fault.command in ("any", command) and self.is_active(fault.when):
                return fault
        return None
