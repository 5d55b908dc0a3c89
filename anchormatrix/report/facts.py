"""Facts of the report, one frozen class per thing that a result file tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchormatrix.planning.groups import SECOND_BEST

POOLED = "all"


@dataclass(frozen=True)
class CardState:
    """One card as it was read last."""

    id: int
    name: str
    health: str
    used_mb: float
    total_mb: float
    temperature_c: float | None
    foreign: tuple[str, ...]

    @property
    def alarmed(self) -> bool:
        """Whether the card is rejected for its health alone."""
        return self.health.lower() in ("alarm", "critical", "fault")


@dataclass(frozen=True)
class ContractFacts:
    """A current contract: what is fixed, and why this group."""

    id: str
    size: int
    version: int
    rank: int
    cards: tuple[int, ...]
    link_class: str
    one_domain: bool
    reason: str
    facts: tuple[tuple[str, str], ...]

    @property
    def note(self) -> str:
        """What every row measured on this group carries."""
        return "" if self.one_domain else SECOND_BEST


@dataclass(frozen=True)
class Refusal:
    """A group that may not be used, or a size that has none (then ``cards`` is empty)."""

    cards: tuple[int, ...]
    size: int
    reason: str


@dataclass(frozen=True)
class Contracts:
    """Current contracts, rejected groups, and sizes without a legal group."""

    current: tuple[ContractFacts, ...]
    rejected: tuple[Refusal, ...]
    unavailable: tuple[Refusal, ...]


@dataclass(frozen=True)
class LedgerEntry:
    """One contract version as it was entered, and what had changed since the previous one of its size."""

    id: str
    size: int
    version: int
    cards: tuple[int, ...]
    changed: tuple[str, ...]
    when: str
    why: str


@dataclass(frozen=True)
class SmokeResult:
    """The four-step smoke of a contract."""

    status: str
    findings: tuple[tuple[str, str], ...]
    step_s: float | None
    expected_s: float | None
    expected_source: str
    form: str
    command: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the group was found as fast as expected."""
        return self.status == "passed"


@dataclass(frozen=True)
class Cell:
    """Form × tier in one window, or in all of them (``window`` is ``all``). Times in seconds, dispersion in percent.

    The dispersion of ``all`` is the worst of its windows: between windows it would mix noise with drift.
    """

    contract: str
    form: str
    tier: str
    window: str
    repeats: int
    step_s: float | None
    dispersion_pct: float | None
    usable: bool
    reason: str
    values_s: tuple[float, ...]


@dataclass(frozen=True)
class Drift:
    """Difference of a cell between two windows."""

    form: str
    tier: str
    drift_pct: float
    exceeds: bool


@dataclass(frozen=True)
class Verdict:
    """May the few-step ranking be used, and which form wins at the anchor.

    ``stands`` says whether the conclusion survives a drift between windows; nothing when there was none.
    """

    status: str
    reason: str
    cure: str
    ratio: Mapping[str, float]
    order_few: tuple[tuple[str, ...], ...]
    order_anchor: tuple[tuple[str, ...], ...]
    ties: tuple[tuple[str, str, float], ...]
    winner: str | None
    tied_with: tuple[str, ...]
    winner_tier: str
    margin_pct: float | None
    drifts: tuple[Drift, ...]
    stands: bool | None
    did_not_run: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def runner_up(self) -> str | None:
        """The best form that is not the winner: one tied with it, else the next of the anchor's order."""
        others = [form for tied in self.order_anchor for form in tied if form != self.winner]
        return (*self.tied_with, *others, None)[0]


@dataclass(frozen=True)
class OwnCheck:
    """What the engine found of its own result before it served, the worst rank; no distance when it was not finite."""

    ok: bool
    relative_distance: float | None
    limit: float


@dataclass(frozen=True)
class Output:
    """What one request gave: an empty ``fingerprint`` when the server gave none."""

    tier: str
    steps: int
    fingerprint: str


@dataclass(frozen=True)
class SessionRecord:
    """One server session: one form in one window. ``outputs`` are those of its warm-ups and repeats."""

    form: str
    window: str
    status: str
    reason: str
    evidence: tuple[str, ...]
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    started_at: str
    finished_at: str
    duration_s: float | None
    proof: tuple[str, ...]
    ramp: str
    log: tuple[tuple[str, str], ...]
    capture: str
    stopped: str
    tries: int
    load: str
    before: Any
    after: Any
    stopped_early: str = ""
    check: OwnCheck | None = None
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True)
class Gate:
    """One gate of one form."""

    form: str
    gate: str
    name: str
    status: str
    text: str
    source: str


@dataclass(frozen=True)
class Gates:
    """``gates.json``: the gates, differences that nothing explains, and projections."""

    gates: tuple[Gate, ...]
    unexplained: tuple[str, ...]
    projections: tuple[str, ...]


@dataclass(frozen=True)
class SweepRow:
    """One point of a group's size sweep; ``size_bytes`` is what one rank hands to the call."""

    collective: str
    link_class: str
    size_bytes: float
    concurrency: int
    time_us: float
    gb_s: float


@dataclass(frozen=True)
class Choice:
    """What the selection stage decided for a size, with its conditions."""

    contract: str
    size: int
    outcome: str
    winner: str | None
    runner_up: str | None
    margin_pct: float | None
    basis: str
    sentence: str
    conditions: tuple[str, ...]
    unknowns: tuple[str, ...]
    reversal: tuple[str, ...]
    confidence: str


@dataclass(frozen=True)
class Trigger:
    """A reason to verify a decision again, whether it holds now, and whether there was anything to test it on."""

    name: str
    fired: bool
    text: str
    evaluated: bool = True


@dataclass(frozen=True)
class Choices:
    """``decision.json``."""

    by_contract: Mapping[str, Choice]
    triggers: tuple[Trigger, ...]
    scaling: tuple[str, ...]


@dataclass(frozen=True)
class Rerun:
    """One cell that was measured again."""

    when: str
    contract: str
    form: str
    tier: str
    before_s: float | None
    before_dispersion_pct: float | None
    after_s: float | None
    after_dispersion_pct: float | None
    changed: tuple[str, ...]
