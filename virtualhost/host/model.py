"""The virtual host as values: the transformer, the links between cards, how fast a card computes, how the serving stack
behaves. Every figure that a scenario sets ends up in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property


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
    parallel_block: bool = False  # attention and feed-forward run side by side, with one sum over tensor ranks

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
    ``inactive_sequence``: no split of the sequence does anything. ``inactive_guidance``: a step has one branch, which
    every rank computes, split over CFG or not.
    ``overlap_tensor_parallel``: row-parallel products run in two token halves, the first half's all-reduce under the
    second half's product.
    ``slow_cards``: ``(card, factor)`` of stragglers. ``jitter``: relative spread of kernel and transfer times over
    layers and ranks, deterministic.
    """

    reverse_after_forward: bool = False
    leaked_transforms: bool = False
    uneven_alltoall: float | None = None
    inactive_ulysses: bool = False
    inactive_sequence: bool = False
    inactive_guidance: bool = False
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
