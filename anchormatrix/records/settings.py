"""The configuration as values: one frozen class per section, field names equal to the keys of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FEW, ANCHOR = "few", "anchor"
"""The two tiers of the matrix: few steps rank the forms, anchor steps decide."""


@dataclass(frozen=True)
class SshSettings:
    """How to reach a host over SSH. ``jump`` is another host to go through."""

    host: str
    port: int = 22
    user: str | None = None
    key_file: str | None = None
    known_hosts: str = "~/.ssh/known_hosts"
    connect_timeout_s: float = 15
    python: str = "python3"
    jump: SshSettings | None = None


@dataclass(frozen=True)
class HostSettings:
    """Where commands run."""

    alias: str
    kind: str = "local"
    path: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    lease_dir: str = "/tmp/anchormatrix-leases"
    command_timeout_s: float = 30
    scratch_dir: str = "/tmp/anchormatrix-scratch"
    ssh: SshSettings | None = None


@dataclass(frozen=True)
class DeviceSettings:
    """Which vendor's cards. ``toolkit`` is a version as text or the command that prints it.

    ``collective_test`` is the vendor's collective test, with places for what to run; empty where torch measures.
    """

    kind: str
    toolkit: str | tuple[str, ...] = "not stated"
    cards: int | None = None
    cores_per_card: int = 1
    collective_test: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineSettings:
    """The serving engine. ``command`` is what comes before ``serve``, ``python`` starts Python in its environment;
    both may be wrappers.
    """

    kind: str
    model: str
    command: tuple[str, ...] = ("vllm",)
    version: str | tuple[str, ...] = ("vllm", "--version")
    python: tuple[str, ...] = ("python3",)
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 1800
    request_timeout_s: float = 3600
    stop_grace_s: float = 120
    stop_command: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkloadSettings:
    """What every request asks for, except its number of steps."""

    endpoint: str
    prompt: str
    width: int
    height: int
    seed: int = 42
    negative_prompt: str = ""
    frames: int = 1
    fps: int = 16
    guidance_scale: float = 1.0
    flow_shift: float | None = None
    extra_params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSettings:
    """Figures of the transformer: they decide which forms are possible, what they hold and what they send."""

    layers: int
    heads: int
    head_dim: int
    sequence_tokens: int
    weights_gb: float
    kv_heads: int | None = None
    ffn_dim: int | None = None
    guidance_branches: int = 1
    bytes_per_value: float = 2
    text_encoder_gb: float = 0
    vae_gb: float = 0
    activation_gb: float = 0
    attention_mask: bool = False
    sparse_block: int | None = None
    cross_attention: bool = False


@dataclass(frozen=True)
class GroupsSettings:
    """Which card groups may be used beyond the rule."""

    allow_cross_domain: bool
    pinned: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class HealthSettings:
    """What makes a card unavailable, and what to do about tenants."""

    static_memory_mb: int
    on_busy: str
    busy_wait_s: float
    contaminated_tries: int


@dataclass(frozen=True)
class WarmupSettings:
    """How many excluded requests there may be before the steady state."""

    min: int
    max: int
    steady_pct: float


@dataclass(frozen=True)
class MatrixSettings:
    """What is measured. ``tiers`` maps ``few`` and ``anchor`` to steps; ``forms`` maps a size to names or ``auto``.

    ``extra_windows`` may replace noisy windows under the adaptive design.
    """

    sizes: tuple[int, ...]
    tiers: Mapping[str, int]
    repeats: int
    windows: int
    design: str
    forms: Mapping[int, tuple[str, ...]] | str
    warmups: WarmupSettings
    extra_windows: int = 1


@dataclass(frozen=True)
class SmokeSettings:
    """Limits of the four-step smoke."""

    steps: int
    residue_factor: float
    straggler_pct: float
    first_step_pct: float
    slope_pct: float
    expected_step_s: Mapping[int, float]


@dataclass(frozen=True)
class VerdictSettings:
    """Limits of the verdict, in percent."""

    dispersion_pct: float
    drift_pct: float
    noise_floor_pct: float
    window_drift_pct: float


@dataclass(frozen=True)
class CaptureSettings:
    """Whether and how one step is captured by the profiler, and what is kept of it."""

    enabled: bool
    trigger: str
    steps: int
    keep: str
    compress: bool


@dataclass(frozen=True)
class AttributionSettings:
    """Tolerances of the capture analyses."""

    release_us: float
    drain_ratio: float
    unusable_rows_pct: float


@dataclass(frozen=True)
class BandwidthSettings:
    """The size sweep of a group: by the device's collective test, else by torch in the engine's environment."""

    enabled: bool
    sizes_mb: tuple[float, ...]
    concurrency: tuple[int, ...]
    repeats: int
    timeout_s: float = 300


@dataclass(frozen=True)
class SelectionSettings:
    """How forms are chosen and judged. ``mask_chunks`` are the chunk counts of masking that ``forms: auto`` tries."""

    offload_order: tuple[str, ...]
    memory_reserve_gb: float
    bandwidth: BandwidthSettings
    host_memory_gb: float | None = None
    mask_chunks: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class HistorySettings:
    """Where results of every session are kept, and for how many nights."""

    file: str
    keep_nights: int


@dataclass(frozen=True)
class NightlySettings:
    """The unattended sweep."""

    deadline: str
    retries: int
    hook: tuple[str, ...]


@dataclass(frozen=True)
class ReportSettings:
    """The report's words."""

    title: str


@dataclass(frozen=True)
class Settings:
    """The whole configuration."""

    host: HostSettings
    device: DeviceSettings
    engine: EngineSettings
    workload: WorkloadSettings
    model: ModelSettings
    groups: GroupsSettings
    health: HealthSettings
    matrix: MatrixSettings
    smoke: SmokeSettings
    verdict: VerdictSettings
    capture: CaptureSettings
    attribution: AttributionSettings
    selection: SelectionSettings
    history: HistorySettings
    nightly: NightlySettings
    report: ReportSettings
    cell: str | None = None
    night: str | None = None
