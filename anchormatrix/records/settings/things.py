"""The sections that describe a thing, each taken whole from one file: host, device, engine, workload, model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from anchormatrix.records.settings.values import (
    LARGEST_SEED,
    MANY,
    Alias,
    Command,
    Count,
    DeviceKind,
    Endpoint,
    Environment,
    Gigabytes,
    HostKind,
    Pixels,
    Seconds,
    Section,
    Text,
    TextOrCommand,
    refuse_nameless,
)


class SshSettings(Section, frozen=True, kw_only=True):
    """How to reach a host over SSH. ``jump`` is another host to go through."""

    host: Text
    port: Annotated[int, Meta(ge=1, le=65535)] = 22
    user: Text | None = None
    key_file: Text | None = None
    known_hosts: str = "~/.ssh/known_hosts"
    connect_timeout_s: Seconds = 15
    python: Text = "python3"
    jump: SshSettings | UnsetType = UNSET


class HostSettings(Section, frozen=True):
    """Where commands run."""

    alias: Alias
    kind: HostKind = HostKind.LOCAL
    path: tuple[str, ...] = ()
    env: Environment = field(default_factory=dict)
    lease_dir: Text = "/tmp/anchormatrix-leases"
    command_timeout_s: Seconds = 30
    scratch_dir: Text = "/tmp/anchormatrix-scratch"
    min_free_mb: Annotated[int, Meta(ge=0, le=MANY, description="MB")] = 16
    ssh: SshSettings | UnsetType = UNSET


class DeviceSettings(Section, frozen=True, kw_only=True):
    """Which vendor's cards. ``toolkit`` is a version as text or the command that prints it.

    ``collective_test`` is the vendor's collective test, with places for what to run; empty where torch measures.
    ``tflops`` is what a card computes in a second, from which times are reckoned before anything was timed.
    """

    kind: DeviceKind
    toolkit: TextOrCommand = "not stated"
    cards: Count | UnsetType = UNSET
    cores_per_card: Count = 1
    tflops: Annotated[float, Meta(gt=0, le=MANY, description="TFLOP/s")] | None = None
    collective_test: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_nameless(self.toolkit)


class EngineSettings(Section, frozen=True, kw_only=True):
    """The serving engine. ``kind`` names an installed one; ``command`` is what comes before ``serve``, ``python``
    starts Python in its environment; both may be wrappers. ``options`` are entries of the engine's own configuration
    file, for an engine that is given one.
    """

    kind: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,63}$")]
    model: Text
    command: Command = ("vllm",)
    version: TextOrCommand = ("vllm", "--version")
    python: Annotated[tuple[str, ...], Meta(min_length=1)] = ("python3",)
    extra_args: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    env: Environment = field(default_factory=dict)
    load_s: Seconds | None = None
    ready_timeout_s: Seconds = 1800
    request_timeout_s: Seconds = 3600
    stop_grace_s: Seconds = 120
    stop_command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse_nameless(self.command, self.version)


class WorkloadSettings(Section, frozen=True, kw_only=True):
    """What every request asks for, except its number of steps."""

    endpoint: Endpoint
    prompt: Text
    width: Pixels
    height: Pixels
    seed: Annotated[int, Meta(ge=0, extra_json_schema={"maximum": LARGEST_SEED})] = 42
    negative_prompt: str = ""
    frames: Count = 1
    fps: Count = 16
    guidance_scale: Annotated[float, Meta(ge=0, le=1_000_000)] = 1.0
    flow_shift: Annotated[float, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    extra_params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seed > LARGEST_SEED:
            raise ValueError("a seed has 64 bits")


class ModelSettings(Section, frozen=True, kw_only=True):
    """Figures of the transformer: they decide which forms are possible, what they hold and what they send.

    ``weights_gb`` are those of one transformer; a pipeline may hold several ``transformers`` of which one runs at a
    time. ``activation_gb`` is the peak of one card without any split of the sequence; ``guidance_branches`` is the
    number of forwards that one denoise step needs (2 with classifier-free guidance); ``cross_attention`` says whether
    layers attend to the text separately (else it is joined to the sequence), ``parallel_block`` whether attention and
    feed-forward of a layer run side by side and are summed together. Without ``kv_heads`` every head has its own K
    and V; without ``ffn_dim`` its divisibility is not checked; without ``sparse_block`` attention is dense.
    """

    layers: Count
    heads: Count
    head_dim: Count
    sequence_tokens: Count
    weights_gb: Annotated[float, Meta(gt=0, le=1_000_000, description="GB")]
    transformers: Annotated[int, Meta(ge=1, le=9)] = 1
    kv_heads: Count | None = None
    ffn_dim: Count | None = None
    guidance_branches: Annotated[int, Meta(ge=1, le=2)] = 1
    bytes_per_value: Annotated[float, Meta(gt=0, le=8)] = 2
    text_encoder_gb: Gigabytes = 0
    vae_gb: Gigabytes = 0
    activation_gb: Gigabytes = 0
    attention_mask: bool = False
    sparse_block: Annotated[int, Meta(ge=1, le=MANY, description="tokens")] | None = None
    cross_attention: bool = False
    parallel_block: bool = False

    @property
    def kv_head_count(self) -> int:
        """Heads of K and V."""
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Hidden width: heads × head size."""
        return self.heads * self.head_dim

    @property
    def grouped_query(self) -> bool:
        """Whether K and V have fewer heads than Q."""
        return self.kv_head_count < self.heads
