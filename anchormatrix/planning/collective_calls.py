"""The collectives that a form runs per layer: over which ranks, how many calls, and how many bytes each is handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from anchormatrix.planning.memory import offload_axis
from anchormatrix.records.form import Form
from anchormatrix.records.host import Topology
from anchormatrix.records.settings.things import ModelSettings

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


def collectives(form: Form, model: ModelSettings) -> tuple[Collective, ...]:
    """The collectives that one layer of the form runs, with what each rank hands to them.

    Ulysses: all-to-all of Q, K, V and of the output. All-gather-KV: K and V of the local heads. Ring: K and V blocks,
    ring−1 hops. Tensor parallelism: all-reduce after attention, after cross-attention to the text where there is one,
    and after the feed-forward; one for attention and feed-forward together where they run side by side. Distributed
    layerwise offload: all-gather of the layer's weights over the degree that shares a copy. With grouped-query
    attention K and V shrink by KV heads ÷ heads (repeated or padded where fewer than ranks). Once-per-step calls (CFG,
    pipeline) are not layers'.
    """
    value = model.head_dim * model.bytes_per_value
    tokens = model.sequence_tokens / form.sequence_degree
    heads, kv = model.heads / form.tp, max(1.0, model.kv_head_count / form.tp)
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
        sums = 2 - model.parallel_block + model.cross_attention
        found.append(Collective("all_reduce", "hidden states", "tp", form.tp, sums, payload))
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
    return replace(call, calls_per_layer=call.calls_per_layer * chunks, payload_bytes=call.payload_bytes / chunks)


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


def link_class(ranks: Sequence[int], cards: Sequence[int], topology: Topology) -> str:
    """The links inside a rank group as one word, such as ``UB`` or ``SYS+UB``."""
    return "+".join(topology.group_links([cards[rank] for rank in ranks])) or "single"
