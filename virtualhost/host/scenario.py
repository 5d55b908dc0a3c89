"""A scenario: everything there is to know about one virtual host, from one YAML file with strict keys.

``docs/virtual-host.md`` explains every key with its unit and default. A file may say ``extends: other.yaml``: mappings
are merged key by key, everything else is replaced. Times are virtual seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from virtualhost.host.faults import Fault, Span, ToolFault
from virtualhost.host.model import Behaviour, DiT, Fabric, HostModel, LinkClass, Rates

LAYOUTS = ("a5", "910b", "a3")
# what a card moves each way over its links of a kind, and the fixed cost of a call, unless the scenario says otherwise
_SPEEDS = {
    "UB": (80.0, 20.0),
    "HCCS": (75.0, 22.0),
    "HCCS_SW": (70.0, 24.0),
    "SIO": (110.0, 14.0),
    "SYS": (22.0, 45.0),
    "PHB": (22.0, 45.0),
    "PXB": (24.0, 40.0),
    "PIX": (26.0, 35.0),
    "NA": (10.0, 60.0),
}


@dataclass(frozen=True)
class Cards:
    """The cards: how many, how they are numbered, what they are. ``visible`` is the subset a container sees.

    ``unlisted`` cards stand in the link matrix and not in ``npu-smi info``; ``others`` are of another model.
    """

    count: int = 8
    first_id: int = 0
    per_npu: int = 1
    name: str = "Ascend950DT"
    memory_mb: int = 98304
    driver_memory_mb: int = 4760
    visible: tuple[int, ...] | None = None
    unlisted: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    other_name: str = "Ascend950PR"

    @property
    def listed(self) -> tuple[int, ...]:
        """The ids of the visible cards that the vendor's tool lists."""
        return tuple(card for card in self.ids if card not in self.unlisted)

    def name_of(self, card: int) -> str:
        """The model of a card."""
        return self.other_name if card in self.others else self.name

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the visible cards."""
        return self.visible or tuple(range(self.first_id, self.first_id + self.count))


@dataclass(frozen=True)
class Speed:
    """How fast one kind of link is: GB/s each way for one card over all its links of this kind, and µs per call."""

    bandwidth_gbs: float
    t0_us: float = 20.0


@dataclass(frozen=True)
class Links:
    """The fabric's shape: cards of one domain are joined by ``inside``, others by ``between``; ``chips`` joins the
    chips of one NPU (empty: like any two cards of the domain)."""

    domains: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3), (4, 5, 6, 7))
    inside: str = "UB"
    between: str = "SYS"
    chips: str = ""
    affinity: bool = True
    short_rows: bool = False
    classes: Mapping[str, Speed] = field(default_factory=dict)
    host_to_card_gbs: float = 25.0
    in_model_efficiency: float = 1.0


@dataclass(frozen=True)
class LinkChange:
    """One link is another from some moment on."""

    between: tuple[int, int]
    link: str
    when: Span = field(default_factory=Span)


@dataclass(frozen=True)
class Health:
    """Cards whose health is not OK."""

    cards: tuple[int, ...]
    state: str = "Alarm"
    when: Span = field(default_factory=Span)


@dataclass(frozen=True)
class Tenant:
    """A foreign process on cards; its pids are ``pid``, ``pid + 1`` … and belong to nobody here."""

    cards: tuple[int, ...]
    pid: int = 499213
    name: str = "python"
    memory_mb: int = 56323
    slowdown: float = 1.0
    when: Span = field(default_factory=Span)


@dataclass(frozen=True)
class Residue:
    """The state a killed multi-card job leaves: everything ``factor`` times slower, health still OK."""

    cards: tuple[int, ...] = ()
    factor: float = 10.0
    after_sigkill: bool = True


@dataclass(frozen=True)
class LevelShift:
    """Everything takes ``factor`` times as long from some moment on, as after a change of the cards' clock."""

    factor: float
    when: Span = field(default_factory=Span)


@dataclass(frozen=True)
class Timing:
    """What moves a request's time away from the plain step time of its form. Percentages are of the step time."""

    dispersion_pct: float = 0.45
    restart_sd_pct: float = 0.1
    step_pct: float = 0.3
    request_correlation: float = 0.0
    request_tail_dof: float = 0.0
    level_shifts: tuple[LevelShift, ...] = ()
    ramp: tuple[float, ...] = (0.862, 0.896)
    thermal_pct_per_step: float = 0.0
    thermal_after: int = 0
    heat_pct: float = 0.0
    heat_s: float = 60.0
    cooling_s: float = 60.0
    stragglers: Mapping[int, float] = field(default_factory=dict)
    windows_differ: bool = True
    windows_named: bool = False
    encode_s: float = 0.415
    decode_s: float = 3.2
    decode_jitter_pct: float = 40.0
    overhead_s: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.request_correlation < 1:
            raise ValueError(f"request_correlation: {self.request_correlation} is not from 0 to below 1")
        if self.request_tail_dof and self.request_tail_dof <= 2:
            raise ValueError(f"request_tail_dof: {self.request_tail_dof} is neither 0 (normal) nor above 2")
        if self.heat_s <= 0 or self.cooling_s <= 0:
            raise ValueError("heat_s and cooling_s are above 0")


@dataclass(frozen=True)
class LogStyle:
    """How the server writes its log. A ``pipeline`` is a plug-in's in place of the model's own."""

    pipeline: str = ""
    transformer: str = "Transformer3DModel"
    diffuse_stage: str = "diffuse"
    per_step: bool = False
    stage_lines: bool = True
    progress_bar: bool = True
    iterations_minus_one: bool = False
    worker_tag: str = "degrees"
    ansi: bool = True
    interleave_every: int = 17

    def __post_init__(self) -> None:
        if self.worker_tag not in ("degrees", "plain", "fs"):
            raise ValueError(f"worker_tag: {self.worker_tag!r} is none of degrees, plain, fs")


@dataclass(frozen=True)
class Serving:
    """The serving process: virtual durations, the real length of a virtual second, and what it calls itself."""

    version: str = "0.30.0"
    startup_s: float = 41.0
    stop_s: float = 2.0
    time_scale: float = 0.0005
    process_name: str = "vLLM-Omni::DiffusionWorker"
    epoch: str = "2026-10-09T08:38:05"
    host_memory_gb: float = 512.0
    capture_style: str = "950"
    capture_inflation: float = 1.3


@dataclass(frozen=True)
class Scenario:
    """One virtual host."""

    name: str
    description: str = ""
    seed: int = 1
    layout: str = "a5"
    tool_version: str = "26.2.0.b007"
    cards: Cards = Cards()
    links: Links = Links()
    link_changes: tuple[LinkChange, ...] = ()
    health: tuple[Health, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    residue: Residue = Residue()
    timing: Timing = Timing()
    dit: DiT = field(default_factory=DiT)
    rates: Rates = field(default_factory=Rates)
    behaviour: Behaviour = field(default_factory=Behaviour)
    log: LogStyle = LogStyle()
    serving: Serving = Serving()
    faults: tuple[Fault, ...] = ()
    tool_faults: tuple[ToolFault, ...] = ()
    expect: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout: {self.layout!r} is none of {', '.join(LAYOUTS)}")
        known = {card for domain in self.links.domains for card in domain}
        missing = [card for card in self.cards.ids if card not in known]
        if missing:
            raise ValueError(f"links.domains: cards {missing} are in no domain")

    @property
    def counts_calls(self) -> bool:
        """Whether anything happens at a certain call of the vendor's tool; else its calls leave no trace here."""
        changes: tuple[LinkChange | Health | Tenant | ToolFault | LevelShift, ...]
        changes = (*self.link_changes, *self.health, *self.tenants, *self.tool_faults, *self.timing.level_shifts)
        return any(one.when.from_call or one.when.until_call is not None for one in changes)

    @cached_property
    def _domain(self) -> dict[int, int]:
        return {card: index for index, domain in enumerate(self.links.domains) for card in domain}

    def npu_of(self, card: int) -> tuple[int, int]:
        """Return (NPU id, chip id) of a card."""
        return divmod(card, self.cards.per_npu)

    def link(self, a: int, b: int) -> str:
        """The name of the link between two cards, before any change."""
        if a == b:
            return "X"
        if self.links.chips and self.npu_of(a)[0] == self.npu_of(b)[0]:
            return self.links.chips
        return self.links.inside if self._domain[a] == self._domain[b] else self.links.between

    def link_matrix(self) -> dict[tuple[int, int], str]:
        """All links between visible cards."""
        return {(a, b): self.link(a, b) for a in self.cards.ids for b in self.cards.ids}

    def host_model(self, links: Mapping[tuple[int, int], str] | None = None) -> HostModel:
        """What decides the timeline of a step, with the links as they are now (default: before any change)."""
        links = links or self.link_matrix()
        ids = self.cards.ids
        speeds = {**{name: Speed(*speed) for name, speed in _SPEEDS.items()}, **self.links.classes}
        fabric = Fabric(
            cards=ids,
            links=tuple(tuple(links[a, b] for b in ids) for a in ids),
            classes=tuple(LinkClass(name, speed.bandwidth_gbs, speed.t0_us) for name, speed in speeds.items()),
            host_to_card_gbs=self.links.host_to_card_gbs,
            in_model_efficiency=self.links.in_model_efficiency,
        )
        return HostModel(self.dit, fabric, self.rates, self.behaviour)
