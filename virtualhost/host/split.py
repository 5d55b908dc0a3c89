"""A form on the virtual host: how it splits the work over ranks, what it needs of a card, and what refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from virtualhost.host.model import Behaviour, DiT

OFFLOADS = ("", "cpu-offload", "layerwise-offload", "distributed-layerwise-offload")
DEGREES = ("tp", "usp", "ring", "ag", "pp", "cfg")  # from the fastest-varying rank index to the slowest


@dataclass(frozen=True)
class Split:
    """Degrees and launch-time features of one form. ``mask_chunks`` is the *requested* number of masking chunks.

    ``pad_heads`` is ``--ulysses-mode advanced_uaa``: heads that do not divide evenly are padded before the exchange.
    """

    tp: int = 1
    usp: int = 1
    ring: int = 1
    ag: int = 1
    pp: int = 1
    cfg: int = 1
    offload: str = ""
    mask_chunks: int = 1
    pad_heads: bool = False

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


def refusal(dit: DiT, split: Split) -> str | None:
    """Return the exception with which the engine ends instead of serving this form of the model, or None."""
    return degrees_refusal(split) or model_refusal(dit, split)


def degrees_refusal(split: Split) -> str | None:
    """Return why the engine takes no such degrees together, whatever the model (vllm-omni 0.30, ``data.py:364``)."""
    if split.ag > 1 and split.usp * split.ring > 1:
        return (
            "AssertionError: AllGather-KV (allgather_degree>1) is mutually exclusive with Ulysses/Ring in v1. "
            f"Got ulysses_degree={split.usp}, ring_degree={split.ring}, allgather_degree={split.ag}."
        )
    return None


def model_refusal(dit: DiT, split: Split) -> str | None:
    """Return the exception with which the engine ends when it loads or first runs this form of the model, or None.

    The texts are those of vLLM (``distributed/utils.py``: ``divide``) and of vllm-omni 0.30 (``ulysses.py:517``,
    ``sequence_parallel.py:486``), but for the last.
    """
    heads, kv = dit.heads, dit.kv_heads
    if split.offload not in OFFLOADS:
        return f"ValueError: unknown offload {split.offload!r}"
    big, small = (kv, split.tp) if kv >= split.tp else (split.tp, kv)  # fewer KV heads than ranks are repeated
    for whole, part in ((heads, split.tp), (big, small), (dit.ffn_dim, split.tp)):
        if whole % part:
            return f"AssertionError: {whole} is not divisible by {part}"
    for name, count in (("query", heads // split.tp), ("key", max(1, kv // split.tp))):
        if count % split.usp and not split.pad_heads:
            fitting = [n for n in range(1, count + 1) if count % n == 0]
            return (
                "ValueError: Ulysses-SP strict mode requires head_cnt divisible by ulysses_degree. "
                f"{name}_head_cnt={count}, ulysses_degree={split.usp}. "
                f"Try ulysses_degree in {fitting}, or set ulysses_mode='advanced_uaa'."
            )
    if dit.sequence_tokens % split.sequence_degree and split.ring > 1:
        return (
            f"ValueError: Sequence length ({dit.sequence_tokens}) is not divisible by SP world size "
            f"({split.sequence_degree}). Cannot use Ring attention which does not support attention_mask. "
            "Please switch to Ulysses SP only."
        )
    if split.pp > dit.layers:
        return f"ValueError: {dit.layers} layers are fewer than pipeline parallel size {split.pp}"
    return None


def exchanged_heads(dit: DiT, split: Split) -> tuple[int, int]:
    """Return the query and KV heads of one tensor rank as Ulysses exchanges them.

    Padded ones keep the ratio of query to KV heads (vllm-omni 0.30, ``ulysses.py``: ``padded_kv_head_cnt``).
    """
    heads, kv = dit.heads // split.tp, max(1, dit.kv_heads // split.tp)
    if not split.pad_heads:
        return heads, kv
    padded = ceil(kv / split.usp) * split.usp
    return padded * (heads // kv), padded


def stage_layers(dit: DiT, split: Split) -> tuple[int, ...]:
    """Return the layers of each pipeline stage; what is left over goes to the stages before the last, as vLLM's
    ``get_pp_indices`` deals them out."""
    each, rest = divmod(dit.layers, split.pp)
    return tuple(each + (split.pp - 1 - rest <= stage < split.pp - 1) for stage in range(split.pp))


def mask_chunks(dit: DiT, split: Split) -> int:
    """Return the chunks in effect: the largest divisor of the local heads that is not above the requested number.

    Masking hides the collectives around attention, so without Ulysses or all-gather-KV there is nothing to chunk.
    """
    if split.mask_chunks <= 1 or split.usp * split.ag == 1 or split.ring > 1:
        return 1
    local, kv_local = (max(1, count // split.usp) for count in exchanged_heads(dit, split))
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
    """Return the degree of the sequence over which distributed layerwise offload shards the weights. Empty when the
    form has none: every rank then holds whole layers, as under the plain kind."""
    return next((name for name in ("ag", "usp", "ring") if getattr(split, name) > 1), "")


def memory(dit: DiT, split: Split) -> Memory:
    """Return what one rank of the form needs.

    Weights are split by tensor and pipeline parallelism, activations by the sequence degree; the text encoder follows
    the world size; each communicator holds 0.4 GB of buffers. CPU offload keeps the text encoder and the VAE on the
    host while denoising. Layerwise offload keeps the layer in use and the next one on the card and all weights pinned
    on the host, once per rank; its distributed kind pins only a shard.
    """
    weights = dit.weights_gb / split.tp * max(stage_layers(dit, split)) / dit.layers
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
