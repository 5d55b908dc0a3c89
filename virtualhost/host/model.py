"""What the virtual host is made of: the transformer, the links between cards, how fast a card computes, how a form
splits the work, and how the serving stack behaves. Pure values: every figure a scenario sets ends up in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod

OFFLOADS = ("", "cpu-offload", "layerwise-offload", "distributed-layerwise-offload")
DEGREES = ("tp", "usp", "ring", "ag", "pp", "cfg")  # from the fastest-varying rank index to the slowest


@dataclass(frozen=True)
class DiT:
    """Figures of one diffusion transformer and of one request's geometry. Weights and activations in GB (1e9 bytes)."""

    layers: int = 40
    heads: int = 40
    kv_heads: int = 40
    head_dim: int = 128
    ffn_dim: int = 13824
    sequence_tokens: int = 32760
    text_tokens: int = 512
    guidance_branches: int = 2
    bytes_per_value: int = 2
    weights_gb: float = 28.0
    text_encoder_gb: float = 11.0
    vae_gb: float = 1.0
    activation_gb: float = 14.0  # per card, without any split of the sequence

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.heads * self.head_dim

    @property
    def layer_bytes(self) -> int:
        """Weights of one layer, unsplit."""
        return int(self.weights_gb * 1e9) // self.layers


@dataclass(frozen=True)
class LinkClass:
    """One kind of link: what a card moves each way over its links of this kind, all peers together, and the fixed cost
    of a call. A transfer of b bytes takes ``t0 + b ÷ bandwidth``."""

    name: str
    bandwidth_gbs: float
    t0_us: float = 20.0


@dataclass(frozen=True)
class Fabric:
    """The cards of a host and their links: ``links[i][j]`` names the class between ``cards[i]`` and ``cards[j]``.

    ``in_model_efficiency`` is the share of a link's bandwidth that collectives reach inside the model; an isolated
    micro-benchmark reaches all of it (see :func:`virtualhost.step.timeline.collective_ns`).
    """

    cards: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]
    classes: tuple[LinkClass, ...]
    host_to_card_gbs: float = 25.0
    in_model_efficiency: float = 1.0

    @classmethod
    def of_domains(
        cls,
        domains: Sequence[Sequence[int]],
        *,
        fast: LinkClass = LinkClass("UB", 80.0, 20.0),
        slow: LinkClass = LinkClass("SYS", 22.0, 45.0),
        host_to_card_gbs: float = 25.0,
    ) -> Fabric:
        """Return a host whose domains are all-to-all over ``fast`` links and joined by ``slow`` ones."""
        home = {card: k for k, block in enumerate(domains) for card in block}
        cards = tuple(sorted(home))
        links = tuple(
            tuple("X" if a == b else fast.name if home[a] == home[b] else slow.name for b in cards) for a in cards
        )
        return cls(cards, links, (fast, slow), host_to_card_gbs)

    @cached_property
    def _index(self) -> dict[int, int]:
        return {card: i for i, card in enumerate(self.cards)}

    @cached_property
    def _classes(self) -> dict[str, LinkClass]:
        return {one.name: one for one in self.classes}

    def link(self, a: int, b: int) -> LinkClass:
        """Return the class of the link between two cards; ``KeyError`` for a card or class the host lacks."""
        return self._classes[self.links[self._index[a]][self._index[b]]]


@dataclass(frozen=True)
class Rates:
    """How fast one card computes. ``half_width`` is the number of output columns at which a matrix product runs at
    half its rate: a narrow shard of tensor parallelism computes less efficiently than the whole."""

    matmul_tflops: float = 240.0
    attention_tflops: float = 170.0
    memory_gbs: float = 1100.0
    half_width: int = 200
    launch_gap_us: float = 2.0  # between two kernels of the compute stream
    step_host_us: float = 3000.0  # the sampler's host work once per step, with idle cards


@dataclass(frozen=True)
class Split:
    """Degrees and launch-time features of one form. ``mask_chunks`` is the *requested* number of masking chunks."""

    tp: int = 1
    usp: int = 1
    ring: int = 1
    ag: int = 1
    cfg: int = 1
    pp: int = 1
    offload: str = ""
    mask_chunks: int = 1

    @property
    def world(self) -> int:
        """Ranks of the form."""
        return prod(getattr(self, name) for name in DEGREES)

    @property
    def sequence_degree(self) -> int:
        """Over how many ranks the sequence is split."""
        return self.usp * self.ring * self.ag

    @property
    def name(self) -> str:
        """The form's usual name, such as ``tp1-usp4+mask4``."""
        parts = [f"tp{self.tp}", f"usp{self.usp}"]
        parts += [f"{key}{getattr(self, key)}" for key in ("ring", "ag", "cfg", "pp") if getattr(self, key) > 1]
        features = [self.offload] if self.offload else []
        features += [f"mask{self.mask_chunks}"] if self.mask_chunks > 1 else []
        return "+".join(["-".join(parts), *features])

    def groups(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the rank groups along one degree; ``sp`` is the whole sequence group (Ulysses × ring × all-gather).

        Ranks are numbered with tensor parallelism fastest, then Ulysses, ring, all-gather-KV, pipeline, CFG.
        """
        axes = ("usp", "ring", "ag") if kind == "sp" else (kind,)
        blocks: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world):
            place = self.place(rank)
            blocks.setdefault(tuple(v for k, v in place.items() if k not in axes), []).append(rank)
        return tuple(tuple(block) for block in blocks.values())

    def place(self, rank: int) -> dict[str, int]:
        """Return a rank's index along each degree."""
        found = {}
        for name in DEGREES:
            rank, found[name] = divmod(rank, getattr(self, name))
        return found


@dataclass(frozen=True)
class StepRule:
    """From denoise step ``first_step`` (0-based) on, steps of the matching forms cost ``factor`` times as much; only
    in requests of at least ``min_steps`` steps. An empty ``forms`` matches every form, else a form's name does."""

    factor: float
    first_step: int = 0
    min_steps: int = 0
    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Behaviour:
    """How the serving stack behaves on this host.

    ``reverse_after_forward``: with masking, the reverse all-to-alls are issued after all forward chunks and behind the
    layer's whole attention, which leaves them exposed; else chunk g+1's forward part goes before chunk g's reverse.
    ``leaked_transforms``: the masking stream also carries the tensor transforms (AI-core work).
    ``uneven_alltoall``: the unequal path is in use; the value is how much larger than the mean the largest block is.
    ``inactive_ulysses``: ``usp`` is accepted and does nothing: every rank computes the whole sequence.
    ``overlap_tensor_parallel``: row-parallel products run in two token halves, the first half's all-reduce under the
    second half's product.
    ``slow_cards``: ``(card, factor)`` of stragglers. ``jitter``: relative spread of kernel and transfer times over
    layers and ranks, deterministic.
    """

    reverse_after_forward: bool = False
    leaked_transforms: bool = False
    uneven_alltoall: float | None = None
    inactive_ulysses: bool = False
    overlap_tensor_parallel: bool = False
    slow_cards: tuple[tuple[int, float], ...] = ()
    jitter: float = 0.0
    step_rules: tuple[StepRule, ...] = ()


@dataclass(frozen=True)
class HostModel:
    """Everything that decides the timeline of a step, apart from the form and the cards it runs on."""

    dit: DiT = field(default_factory=DiT)
    fabric: Fabric = field(default_factory=lambda: Fabric.of_domains(((0, 1, 2, 3), (4, 5, 6, 7))))
    rates: Rates = field(default_factory=Rates)
    behaviour: Behaviour = field(default_factory=Behaviour)


def refusal(dit: DiT, split: Split) -> str | None:
    """Return why the engine cannot start this form for this model, or None."""
    local = dit.heads // split.tp
    kv_local = max(1, dit.kv_heads // split.tp)
    checks = (
        (split.offload not in OFFLOADS, f"unknown offload {split.offload!r}"),
        (dit.heads % split.tp != 0, f"{dit.heads} heads are not divisible by tensor parallel size {split.tp}"),
        (
            dit.kv_heads % split.tp != 0 and split.tp % dit.kv_heads != 0,
            f"{dit.kv_heads} KV heads cannot be spread over tensor parallel size {split.tp}",
        ),
        (local % split.usp != 0, f"({dit.heads} heads / tp {split.tp}) is not divisible by ulysses degree {split.usp}"),
        (
            kv_local % split.usp != 0 and split.usp % kv_local != 0,
            f"{kv_local} local KV heads cannot be spread over ulysses degree {split.usp}",
        ),
        (split.cfg > dit.guidance_branches, f"cfg parallel size {split.cfg} needs as many guidance branches"),
        (dit.layers % split.pp != 0, f"{dit.layers} layers are not divisible by pipeline parallel size {split.pp}"),
    )
    return next((text for failed, text in checks if failed), None)


def mask_chunks(dit: DiT, split: Split) -> int:
    """Return the chunks in effect: the largest divisor of the local heads that is not above the requested number.

    Masking hides the collectives around attention, so without Ulysses or all-gather-KV there is nothing to chunk.
    """
    if split.mask_chunks <= 1 or split.usp * split.ag == 1 or split.ring > 1:
        return 1
    local = dit.heads // split.tp // split.usp
    kv_local = max(1, dit.kv_heads // split.tp // split.usp)
    usable = kv_local if kv_local < local else local  # a chunk of query heads needs its own KV heads
    return max(n for n in range(1, usable + 1) if usable % n == 0 and n <= split.mask_chunks)


def local_tokens(dit: DiT, split: Split) -> int:
    """Return the tokens of one rank outside attention; the sequence is padded to a multiple of the degree."""
    return ceil(dit.sequence_tokens / split.sequence_degree)


@dataclass(frozen=True)
class Memory:
    """Memory of one rank in GB: on its card while denoising, and pinned on the host for offloaded weights."""

    weights_gb: float
    encoders_gb: float
    activations_gb: float
    buffers_gb: float
    host_gb: float

    @property
    def card_gb(self) -> float:
        """What must fit beside the driver's own memory."""
        return self.weights_gb + self.encoders_gb + self.activations_gb + self.buffers_gb


def offload_axis(split: Split) -> str:
    """Return the degree over which distributed layerwise offload shards the weights: a group whose ranks would else
    hold the same weights. Empty when the form has none."""
    return next((name for name in ("ag", "usp", "ring", "cfg") if getattr(split, name) > 1), "")


def memory(dit: DiT, split: Split) -> Memory:
    """Return what one rank of the form needs.

    Weights are split by tensor and pipeline parallelism, activations by the sequence degree; the text encoder follows
    the world size; each communicator holds 0.4 GB of buffers. CPU offload keeps the text encoder and the VAE on the
    host while denoising. Layerwise offload keeps the layer in use and the next one on the card and all weights pinned
    on the host, once per rank; its distributed kind pins only a shard.
    """
    weights = dit.weights_gb / split.tp / split.pp
    encoders = dit.text_encoder_gb / split.world + dit.vae_gb
    host = 0.0
    if split.offload == "cpu-offload":
        host, encoders = encoders, 0.0
    elif split.offload:
        axis = offload_axis(split) if split.offload.startswith("distributed") else ""
        host = weights / (getattr(split, axis) if axis else 1)
        weights = min(weights, 2 * weights * split.pp / dit.layers)
    communicators = sum(getattr(split, name) > 1 for name in DEGREES) + (split.sequence_degree > 1)
    return Memory(weights, encoders, dit.activation_gb / split.sequence_degree, 0.4 * communicators, host)


def step_factor(behaviour: Behaviour, split: Split, index: int, steps_total: int) -> float:
    """Return how many times the modelled cost the denoise step ``index`` (0-based) of ``steps_total`` takes.

    Noise, ramp and thermal slope are not in here: they belong to a session, not to the form.
    """
    factor = 1.0
    for rule in behaviour.step_rules:
        if index >= rule.first_step and steps_total >= rule.min_steps and (not rule.forms or split.name in rule.forms):
            factor *= rule.factor
    return factor
