"""The byte bound: bytes a rank sends per layer inside its domain and across, the least time they take, and how far the
model stays from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.measure.bandwidth.curve import Curves, Estimate, wire_bytes
from anchormatrix.planning.candidates import forwards_per_step
from anchormatrix.planning.collective_calls import Collective, collectives, concurrency, link_class, rank_groups
from anchormatrix.records.attribution import Family
from anchormatrix.records.conclusions.gates import CallBound, Unexplained
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.host import Topology
from anchormatrix.records.settings.things import ModelSettings

_UNEXPLAINED_PCT = 10.0  # implied and isolated bandwidth that differ by less agree, within what a sweep resolves
_CALLS_OFF = 0.02  # a few calls outside the layers do not move a mean
_FAMILY_KIND = {"alltoall": "all_to_all", "allgather": "all_gather", "allreduce": "all_reduce", "sendrecv": "send_recv"}


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
    forwards = forwards_per_step(form, model)
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


def bandwidths(evidence: Sequence[FormEvidence], bounds: Mapping[str, ByteBound]) -> tuple[Unexplained, ...]:
    """In-model implied bandwidth against the isolated sweep, where the sweep was made at the form's concurrency.

    Implied = bytes of one rank on the wire ÷ mean duration of a call, isolated = the same bytes ÷ the sweep's time.
    Families whose calls carry different payloads are compared by the mean; a communicator with another number of calls
    than the layers make is another collective of the same family. A capture that may not be read is not compared.
    """
    return tuple(
        row
        for form in evidence
        if form.captured and (bound := bounds.get(form.form.name))
        for family in form.families
        if (row := _compare(form, family, bound))
    )


def unexplained(compared: Sequence[Unexplained]) -> tuple[Unexplained, ...]:
    """Differences above 10 %, whichever side is faster."""
    return tuple(row for row in compared if abs(row.isolated_over_implied - 1) * 100 > _UNEXPLAINED_PCT)


def _compare(form: FormEvidence, family: Family, bound: ByteBound) -> Unexplained | None:
    kind = _FAMILY_KIND.get(family.family.lower().replace("_", "").removesuffix("v"))
    calls = [
        call for call in bound.calls if call.kind == kind and call.time_us and "at once, the form" not in call.basis
    ]
    if not calls or len({call.dimension for call in calls}) > 1 or family.mean_ms <= 0:
        return None
    expected = sum(call.calls_per_layer for call in calls) * bound.layers * bound.forwards_per_step
    if abs(family.calls - expected) > _CALLS_OFF * expected:
        return None
    payload, isolated_us = _means(calls)
    wire = wire_bytes(calls[0].kind, calls[0].ranks, payload)
    implied = wire / (family.mean_ms * 1e-3) / 1e9
    isolated = wire / (isolated_us * 1e-6) / 1e9
    name = f"{family.family} ({family.communicator})" if family.communicator else family.family
    text = (
        f"{form.form.name}: {name} puts {implied:.2f} GB/s on the wire in the model "
        f"and {isolated:.2f} GB/s in isolation at the same concurrency ({calls[0].concurrency}); the rest is "
        "unexplained. A sweep while the model computes would show whether compute and communication share a resource."
    )
    return Unexplained(
        form=form.form.name,
        family=family.family,
        communicator=family.communicator,
        implied_gb_s=implied,
        isolated_gb_s=isolated,
        concurrency=calls[0].concurrency,
        text=text,
        isolated_over_implied=isolated / implied,
    )


def _means(calls: Sequence[CallBound]) -> tuple[float, float]:
    count = sum(call.calls_per_layer for call in calls)
    payload = sum(call.payload_bytes * call.calls_per_layer for call in calls) / count
    return payload, sum(call.time_us or 0.0 for call in calls) / count
