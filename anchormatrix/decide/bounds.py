"""The byte bound: bytes a rank sends per layer inside its domain and across, and the least time they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anchormatrix.measure.bandwidth.curve import Curves, Estimate
from anchormatrix.planning.collective_calls import Collective, collectives, concurrency, link_class, rank_groups
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.gates import CallBound
from anchormatrix.records.host import Topology
from anchormatrix.records.settings.things import ModelSettings


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


def byte_rows(form: Form, model: ModelSettings, cards: Sequence[int], topology: Topology) -> tuple[ByteRow, ...]:
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


def byte_bound(form: Form, model: ModelSettings, contract: Contract, sweep: Curves | None) -> ByteBound:
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
        kind=call.kind,
        carries=call.carries,
        dimension=call.dimension,
        ranks=call.ranks,
        calls_per_layer=call.calls_per_layer,
        payload_bytes=call.payload_bytes,
        link_class=slowest,
        concurrency=at_once,
        time_us=time_us,
        basis=basis,
    )
