"""The byte bound: bytes a rank sends per layer inside its domain and across, and the least time they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from anchormatrix.measure.bandwidth.curve import Estimate, Sweep
from anchormatrix.planning.memory import offload_axis
from anchormatrix.planning.model_figures import ModelFigures
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.host import Topology

# Ranks are numbered with tensor parallelism fastest, then Ulysses, ring, all-gather-KV, pipeline and CFG.
_PLACEMENT = ("tp", "usp", "ring", "ag", "pp", "cfg")


@dataclass(frozen=True)
class Collective:
    """One kind of call of a form. ``payload_bytes`` is what one rank hands to one call.

    The local tensor for all-to-all and all-reduce, its own shard for all-gather, one block for send/receive.
    ``dimension`` is the degree whose groups it runs in; ``hops`` the blocks a ring passes on per layer.
    """

    kind: str  # all_to_all | all_gather | all_reduce | send_recv
    carries: str
    dimension: str
    ranks: int
    calls_per_layer: float
    payload_bytes: float

    def bytes_to_peers(self, position: int) -> dict[int, float]:
        """Bytes per layer that the rank at ``position`` of the group puts on the wire, by the peer's position.

        All-to-all: 1/w of the local tensor to each peer, (w−1)/w in all. All-gather: the own shard to each of w−1
        peers. All-reduce: 2(w−1)/w of the tensor, shared by the peers. Ring: the block to the next rank only.
        """
        w, size = self.ranks, self.payload_bytes * self.calls_per_layer
        peers = [peer for peer in range(w) if peer != position]
        if self.kind == "all_to_all":
            return dict.fromkeys(peers, size / w)
        if self.kind == "all_gather":
            return dict.fromkeys(peers, size)
        if self.kind == "all_reduce":
            return dict.fromkeys(peers, 2 * size / w)
        return {(position + 1) % w: size}


@dataclass(frozen=True)
class ByteRow:
    """Bytes per layer of one rank for one collective, in two columns."""

    rank: int
    card: int
    kind: str
    carries: str
    same_domain_bytes: float
    cross_domain_bytes: float


@dataclass(frozen=True)
class CallBound:
    """The least time of one collective per layer, from the sweep; ``time_us`` is None when the sweep cannot tell.

    ``link_class`` is that of the slowest group of this dimension; ``concurrency`` see :func:`concurrency`.
    """

    kind: str
    carries: str
    dimension: str
    ranks: int
    calls_per_layer: float
    payload_bytes: float
    link_class: str
    concurrency: int
    time_us: float | None
    basis: str


@dataclass(frozen=True)
class ByteBound:
    """The byte bound of one form on one group.

    ``same_domain_bytes`` and ``cross_domain_bytes`` are of the rank that sends most across domains (then most at all),
    per layer. ``layer_us`` and ``step_ms`` are sums over the calls and None when any of them is unknown.
    """

    form: Form
    rows: tuple[ByteRow, ...]
    calls: tuple[CallBound, ...]
    forwards_per_step: float
    layers: int

    @property
    def worst(self) -> tuple[float, float]:
        """(same-domain, cross-domain) bytes per layer of the rank that sends most across domains."""
        totals: dict[int, list[float]] = {}
        for row in self.rows:
            total = totals.setdefault(row.rank, [0.0, 0.0])
            total[0] += row.same_domain_bytes
            total[1] += row.cross_domain_bytes
        if not totals:
            return 0.0, 0.0
        same, cross = max(totals.values(), key=lambda pair: (pair[1], pair[0]))
        return same, cross

    @property
    def layer_us(self) -> float | None:
        """Time of all calls of one layer, one after the other."""
        times = [call.time_us for call in self.calls]
        return None if any(time is None for time in times) else sum(time for time in times if time is not None)

    @property
    def step_ms(self) -> float | None:
        """Time of all calls of one denoise step: layers × forwards of this rank."""
        return None if self.layer_us is None else self.layer_us * self.layers * self.forwards_per_step / 1e3

    @property
    def unknown(self) -> tuple[str, ...]:
        """What the sweep could not tell."""
        return tuple(call.basis for call in self.calls if call.time_us is None)


def collectives(form: Form, model: ModelFigures) -> tuple[Collective, ...]:
    """The collectives that one layer of the form runs, with what each rank hands to them.

    Ulysses: all-to-all of Q, K, V and of the output. All-gather-KV: K and V of the local heads. Ring: K and V blocks,
    ring−1 hops. Tensor parallelism: all-reduce after attention, after cross-attention to the
    text where there is one, and after the feed-forward. Distributed layerwise
    offload: all-gather of the layer's weights over the degree that shares a copy. With grouped-query attention K and V
    shrink by KV heads ÷ heads (repeated where fewer than ranks). Once-per-step calls (CFG, pipeline) are not layers'.
    """
    value = model.head_dim * model.bytes_per_value
    tokens = model.sequence_tokens / form.sequence_degree
    heads, kv = model.heads / form.tp, max(1.0, model.kv_heads / form.tp)
    found: list[Collective] = []
    if form.usp > 1:
        sent_kv = max(kv, form.usp)
        found += [
            Collective("all_to_all", "Q", "usp", form.usp, 1, tokens * heads * value),
            Collective("all_to_all", "K, V", "usp", form.usp, 2, tokens * sent_kv * value),
            Collective("all_to_all", "output", "usp", form.usp, 1, tokens * heads * value),
        ]
    block = tokens * form.usp * max(1.0, kv / form.usp) * value
    if form.ag > 1:
        found.append(Collective("all_gather", "K, V", "ag", form.ag, 2, block))
    if form.ring > 1:
        found.append(Collective("send_recv", "K, V", "ring", form.ring, 2 * (form.ring - 1), block))
    if form.tp > 1:
        payload = tokens * model.width * model.bytes_per_value
        found.append(Collective("all_reduce", "hidden states", "tp", form.tp, 2 + model.cross_attention, payload))
    if form.mask_chunks > 1:
        found = [_chunked(call, form.mask_chunks) for call in found]
    if form.offload == "distributed-layerwise-offload":
        axis = offload_axis(form)
        if axis and model.weights_gb:
            sharers = form.degrees[axis]
            shard = model.weights_gb * 1e9 / model.layers / form.tp / sharers
            found.append(Collective("all_gather", "layer weights", axis, sharers, 1, shard))
    return tuple(found)


def _chunked(call: Collective, chunks: int) -> Collective:
    if call.dimension not in ("usp", "ag"):
        return call
    return Collective(
        call.kind,
        call.carries,
        call.dimension,
        call.ranks,
        call.calls_per_layer * chunks,
        call.payload_bytes / chunks,
    )


def concurrency(form: Form) -> int:
    """Communicators that are active at once on one rank's links.

    One, unless calls run on streams of their own: masking overlaps the collectives of Ulysses and all-gather-KV with
    each other, and distributed offload fetches the next layer's weights meanwhile.
    """
    masked = sum(form.degrees[name] > 1 for name in ("usp", "ag")) if form.mask_chunks > 1 else 1
    fetching = form.offload == "distributed-layerwise-offload" and bool(offload_axis(form))
    return max(1, masked) + fetching


def rank_groups(form: Form, dimension: str) -> tuple[tuple[int, ...], ...]:
    """The rank groups of one degree, tensor ranks fastest: ``tp2-usp2`` has tp groups (0,1) (2,3), usp (0,2) (1,3)."""
    sizes = [form.degrees[name] for name in _PLACEMENT]
    groups: dict[tuple[int, ...], list[int]] = {}
    for digits in product(*(range(size) for size in reversed(sizes))):
        place = dict(zip(reversed(_PLACEMENT), digits, strict=True))
        rank, stride = 0, 1
        for name, size in zip(_PLACEMENT, sizes, strict=True):
            rank += place[name] * stride
            stride *= size
        key = tuple(place[name] for name in _PLACEMENT if name != dimension)
        groups.setdefault(key, []).append(rank)
    return tuple(sorted(tuple(sorted(ranks)) for ranks in groups.values()))


def byte_rows(form: Form, model: ModelFigures, cards: Sequence[int], topology: Topology) -> tuple[ByteRow, ...]:
    """Bytes per layer of every rank and collective, split by whether the peer's card shares the rank's domain."""
    return tuple(
        row
        for call in collectives(form, model)
        for ranks in rank_groups(form, call.dimension)
        for row in _rows_of(call, ranks, cards, topology)
    )


def _rows_of(call: Collective, ranks: Sequence[int], cards: Sequence[int], topology: Topology) -> Iterator[ByteRow]:
    for position, rank in enumerate(ranks):
        same = cross = 0.0
        for peer, size in call.bytes_to_peers(position).items():
            if topology.same_domain(cards[rank], cards[ranks[peer]]):
                same += size
            else:
                cross += size
        yield ByteRow(rank, cards[rank], call.kind, call.carries, same, cross)


def link_class(ranks: Sequence[int], cards: Sequence[int], topology: Topology) -> str:
    """The links inside a rank group as one word, such as ``UB`` or ``SYS+UB``."""
    return "+".join(topology.group_links([cards[rank] for rank in ranks])) or "single"


def byte_bound(form: Form, model: ModelFigures, contract: Contract, sweep: Sweep | None) -> ByteBound:
    """The byte bound of a form on a contract's group.

    One call takes t0 + bytes ÷ B(bytes): read from the size sweep of the same link class and concurrency. Of a
    dimension's groups the one over the slowest links counts.
    """
    topology, at_once = contract.topology, concurrency(form)
    calls = []
    for call in collectives(form, model):
        groups = rank_groups(form, call.dimension)
        found = [
            (kind, sweep.estimate(call.kind, kind, call.ranks, call.payload_bytes, at_once) if sweep else None)
            for kind in sorted({link_class(ranks, contract.cards, topology) for ranks in groups})
        ]
        calls.append(_call_bound(call, at_once, found))
    forwards = model.guidance_branches / form.cfg
    rows = byte_rows(form, model, contract.cards, topology)
    return ByteBound(form, rows, tuple(calls), forwards, model.layers // form.pp)


def _call_bound(call: Collective, at_once: int, found: Sequence[tuple[str, Estimate | None]]) -> CallBound:
    unknown = [kind for kind, estimate in found if estimate is None or estimate.time_us is None]
    if unknown:
        slowest, time_us = unknown[0], None
        basis = next((e.basis for k, e in found if k == slowest and e), f"no sweep of {call.kind} over {slowest} links")
    else:
        slowest, estimate = max(((k, e) for k, e in found if e), key=lambda pair: pair[1].time_us or 0.0)
        time_us, basis = (estimate.time_us or 0.0) * call.calls_per_layer, estimate.basis
    return CallBound(
        call.kind,
        call.carries,
        call.dimension,
        call.ranks,
        call.calls_per_layer,
        call.payload_bytes,
        slowest,
        at_once,
        time_us,
        basis,
    )
