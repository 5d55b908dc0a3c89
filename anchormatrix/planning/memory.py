"""The memory gate: what a form needs per card, and unlocking by lossless offload before it is dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from anchormatrix.planning.candidates import Excluded
from anchormatrix.records.form import OFFLOADS, Form
from anchormatrix.records.settings.things import ModelSettings

MEMORY_GATE = "memory gate"
NO_CARD_MEMORY = "the cards do not tell their memory, so no form was checked against it"
_GB = 1e9
_RESIDENT_LAYERS = 2  # the layer that computes and the one that is being fetched


@dataclass(frozen=True)
class MemoryLimits:
    """A card's memory, what to leave free on it (driver, fragmentation), and the host's for offloaded weights."""

    card_gb: float
    reserve_gb: float = 4.0
    host_gb: float | None = None
    offload_order: tuple[str, ...] = ("distributed-layerwise-offload", "layerwise-offload", "cpu-offload")


@dataclass(frozen=True)
class Memory:
    """Peak memory of one card in GB (10⁹ bytes), by part, and of the host. ``total_gb`` is the card's peak."""

    form: Form
    weights_gb: float
    activation_gb: float
    buffers_gb: float
    other_gb: float
    host_gb: float

    @property
    def total_gb(self) -> float:
        """Sum of the parts on the card."""
        return self.weights_gb + self.activation_gb + self.buffers_gb + self.other_gb


@dataclass(frozen=True)
class MemoryPlan:
    """Forms that fit (as they will be launched), which of them fit only by an offload, and what was dropped."""

    fits: tuple[Memory, ...]
    unlocked: tuple[tuple[Form, Form], ...]
    dropped: tuple[Excluded, ...]

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms to launch, in order."""
        return tuple(memory.form for memory in self.fits)


def memory_of(form: Form, model: ModelSettings) -> Memory:
    """Peak memory of one card.

    Weights, those of every transformer, are split by tp and by the layers of a stage, and repeated over sequence and
    CFG ranks. Activations shrink with the sequence degree; tensor parallelism leaves the residual stream whole, so it
    is not credited. Buffers are what the collectives of one
    layer need at once. The text encoder is split over all ranks, the VAE's weights are repeated. Offload: whole
    components (``cpu-offload``) are resident one at a time; layer by layer, two layers are. Plain layerwise offload
    keeps one host copy per rank; the distributed kind shares one among the ranks of :func:`offload_axis`.
    """
    one = model.weights_gb / form.tp * ceil(model.layers / form.pp) / model.layers
    weights = one * model.transformers
    activation = model.activation_gb / form.sequence_degree
    encoder, vae = model.text_encoder_gb / form.cards, model.vae_gb
    other, host = encoder + vae, 0.0
    if form.offload == "cpu-offload":
        host = (weights + encoder + vae) * form.cards
        weights, other = one, max(0.0, encoder - one - activation, vae - one - activation)
    elif form.offload:
        layers = model.layers / form.pp
        copies = form.cards
        if form.offload == "distributed-layerwise-offload" and (axis := offload_axis(form)):
            copies //= form.degrees[axis]
        host = weights * copies
        weights *= min(1.0, _RESIDENT_LAYERS / layers)
    return Memory(form, weights, activation, buffers_gb(form, model), other, host)


def buffers_gb(form: Form, model: ModelSettings) -> float:
    """Communication buffers of one layer on one card, in GB.

    Ulysses holds a second copy of Q, K, V and O shards; all-gather-KV the whole K and V of its heads; ring two more
    K/V blocks; tensor parallelism reduces in place. One chunk at a time with masking.
    """
    shard = model.sequence_tokens / form.sequence_degree * model.head_dim * model.bytes_per_value
    heads, kv = model.heads / form.tp, max(1.0, model.kv_head_count / form.tp)
    total = 0.0
    if form.usp > 1:
        total += shard * (2 * heads + 2 * max(kv, form.usp)) / form.mask_chunks
    local_kv = max(1.0, kv / form.usp)
    if form.ag > 1:
        total += shard * form.usp * form.ag * 2 * local_kv / form.mask_chunks
    if form.ring > 1:
        total += 2 * shard * form.usp * 2 * local_kv
    return total / _GB


def offload_axis(form: Form) -> str:
    """The degree over which distributed layerwise offload shares one copy; empty where it would be the plain kind.

    Only ranks of the sequence share: vllm-omni 0.30.0 derives the group from the sequence degree alone
    (``diffusion/offloader/base.py:160``).
    """
    return next((name for name in ("ag", "usp", "ring") if form.degrees[name] > 1), "")


def why_not(memory: Memory, limits: MemoryLimits) -> str | None:
    """Return why the form does not fit, or None."""
    usable = limits.card_gb - limits.reserve_gb
    if memory.total_gb > usable:
        return (
            f"needs {memory.total_gb:.1f} GB per card (weights {memory.weights_gb:.1f}, activations "
            f"{memory.activation_gb:.1f}, buffers {memory.buffers_gb:.1f}, other {memory.other_gb:.1f}); "
            f"{usable:.1f} GB are usable"
        )
    if limits.host_gb is not None and memory.host_gb > limits.host_gb:
        return (
            f"would hold {memory.host_gb:.1f} GB of weights in host memory; the host has {limits.host_gb:.1f} GB for it"
        )
    return None


def plan_memory(forms: Iterable[Form], model: ModelSettings, limits: MemoryLimits) -> MemoryPlan:
    """Keep forms that fit; try the others with each lossless offload in the configured order before dropping them.

    The reserve is caution, not a fact: a form that fits a card only without it is measured all the same, beside the
    variant that fits with it, and may run out of memory then. An offload asked for where none is needed is measured
    beside the form without it: nothing else shows that weights left the card.
    """
    fits: list[Memory] = []
    unlocked: list[tuple[Form, Form]] = []
    dropped: list[Excluded] = []
    whole = replace(limits, reserve_gb=0.0)
    for form in dict.fromkeys(_beside_plain(forms, model, whole)):
        plain, found = memory_of(form, model), _fitting(form, model, limits)
        if tight := why_not(plain, whole) is None:
            fits.append(plain)
        elif found is None:
            found = _fitting(form, model, whole)
        if found is not None:
            fits.append(found)
            unlocked += [] if tight else [(form, found.form)]
        elif not tight:
            tried = [] if form.offload else [variant.offload for variant in _offloaded(form, limits)]
            text = f"; also with {', '.join(tried)}" if tried else ""
            dropped.append(Excluded(form, f"{why_not(plain, whole)}{text}", MEMORY_GATE))
    return MemoryPlan(tuple(_unique(fits)), tuple(unlocked), tuple(dropped))


def _beside_plain(forms: Iterable[Form], model: ModelSettings, whole: MemoryLimits) -> Iterator[Form]:
    """The forms, each with an offload behind the same form without it where that fits the card."""
    for form in forms:
        if form.offload and why_not(memory_of(plain := replace(form, offload=""), model), whole) is None:
            yield plain
        yield form


def _fitting(form: Form, model: ModelSettings, limits: MemoryLimits) -> Memory | None:
    """The form, else its first offload variant that fits; None when neither does."""
    tried = (memory_of(found, model) for found in (form, *_offloaded(form, limits)))
    return next((memory for memory in tried if why_not(memory, limits) is None), None)


def _offloaded(form: Form, limits: MemoryLimits) -> tuple[Form, ...]:
    """The offload variants of a form, in the configured order."""
    if form.offload:
        return ()
    names = (name for name in limits.offload_order if name in OFFLOADS)
    shared = "distributed-layerwise-offload"
    return tuple(replace(form, offload=name) for name in names if name != shared or offload_axis(form))


def _unique(memories: Sequence[Memory]) -> list[Memory]:
    return list({memory.form: memory for memory in memories}.values())
