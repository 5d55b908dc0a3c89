"""The discrete-event core: streams, communicators and link ports of all ranks, in integer nanoseconds.

Kernels of one stream run in issue order. A collective's kernel starts on a rank when its stream is free and its input
is ready; the transfer starts when every member has started and the ports it needs are free, and ends for all members at
once, so a member that came early shows the wait inside its kernel. A port (one card's links of one class) carries one
transfer at a time, in issue order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from virtualhost.host.model import Fabric, HostModel
from virtualhost.host.split import DEGREES, Split

COMPUTE = "compute"
COPY = "copy"
AI_CPU = "ai_cpu"


class Op(NamedTuple):
    """What a kernel is. ``stream`` is ``compute``, ``copy``, ``ai_cpu`` or a communicator kind (``usp``, ``tp`` …);
    ``family`` is empty for anything but a collective; ``part`` says which part of a layer a collective serves."""

    name: str
    type: str
    core: str  # AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV, AI_CPU, HCCL or COPY
    stream: str
    family: str = ""
    part: str = ""
    attention: bool = False


class Row(NamedTuple):
    """One kernel on one rank; ``ready_ns`` is when the collective that carries an attention kernel's own input ended
    (−1: not an attention kernel, or it has no such input)."""

    op: int
    start_ns: int
    dur_ns: int
    ready_ns: int


class Group(NamedTuple):
    """One communicator: its kind, the id its kernels are named with, its ranks, and the cost of a call on it as a
    function of the bytes each member puts on the wire."""

    kind: str
    gid: int
    ranks: tuple[int, ...]
    ports: tuple[int, ...]
    cost: Callable[[int], int]
    neighbour_cost: Callable[[int], int]  # of a turn of a ring: each member sends to the next one only


def transfer_cost(fabric: Fabric, cards: Sequence[int], *, efficiency: float = 1.0) -> Callable[[int], int]:
    """Return the time (ns) of one call as a function of the bytes each member puts on the wire.

    A member's bytes go in equal parts to its peers; links of different classes carry their parts at the same time, so
    the class with the largest bytes ÷ bandwidth decides, and the largest fixed cost of the classes in use is paid.
    """
    t0_ns, ns_per_byte = 0.0, 0.0
    for card in cards:
        links = [fabric.link(card, peer) for peer in cards if peer != card]
        for link in set(links):
            t0_ns = max(t0_ns, link.t0_us * 1000)
            share = links.count(link) / len(links)
            ns_per_byte = max(ns_per_byte, share / (link.bandwidth_gbs * efficiency))
    return lambda wire_bytes: round(t0_ns + wire_bytes * ns_per_byte)


def neighbour_cost(fabric: Fabric, cards: Sequence[int]) -> Callable[[int], int]:
    """Return the time (ns) of one turn of a ring as a function of its bytes: the slowest neighbours decide."""
    pairs = [(a, b) for a, b in zip(cards, (*cards[1:], cards[0]), strict=True)]
    costs = [transfer_cost(fabric, pair, efficiency=fabric.in_model_efficiency) for pair in pairs]
    return lambda wire_bytes: max(cost(wire_bytes) for cost in costs)


def make_groups(model: HostModel, split: Split, cards: Sequence[int]) -> tuple[Group, ...]:
    """Return every communicator of the form on these cards; a port is one card's links of one class."""
    fabric = model.fabric
    classes = [one.name for one in fabric.classes]
    groups: list[Group] = []
    for kind in (*DEGREES, "sp"):
        for ranks in split.groups(kind):
            if len(ranks) < 2:
                continue
            members = [cards[rank] for rank in ranks]
            ports = {
                rank * len(classes) + classes.index(fabric.link(a, b).name)
                for rank, a in zip(ranks, members, strict=True)
                for b in members
                if a != b
            }
            cost = transfer_cost(fabric, members, efficiency=fabric.in_model_efficiency)
            turn = neighbour_cost(fabric, members)
            groups.append(Group(kind, 445 + 29 * len(groups), ranks, tuple(sorted(ports)), cost, turn))
    return tuple(groups)


class Simulator:
    """The state of all ranks while one step is built. Events are lists of times, one per rank."""

    def __init__(self, model: HostModel, split: Split, cards: Sequence[int]) -> None:
        self.fabric, self.cards = model.fabric, tuple(cards)
        self.groups = make_groups(model, split, cards)
        self.world = split.world
        self.ops: list[Op] = []
        self._op_ids: dict[Op, int] = {}
        self.gap_ns = round(model.rates.launch_gap_us * 1000)
        streams = [COMPUTE, COPY, AI_CPU, *{group.kind for group in self.groups}]
        self.free: dict[str, list[int]] = {stream: [0] * self.world for stream in sorted(streams)}
        self.clock = self.free[COMPUTE]
        self.ports = [0] * (self.world * len(model.fabric.classes))
        self.ports_per_rank = len(model.fabric.classes)
        self.rows: list[list[Row]] = [[] for _ in range(self.world)]
        self.active: tuple[int, ...] = tuple(range(self.world))
        self._members = {kind: [group for group in self.groups if group.kind == kind] for kind in (*DEGREES, "sp")}
        slow = dict(model.behaviour.slow_cards)
        self.card_factor = [slow.get(card, 1.0) for card in cards]
        self.rank_factor = list(self.card_factor)
        self.wire_factor = 1.0

    def op(self, op: Op) -> int:
        """Return the number of an operation, registering it at its first use."""
        if op not in self._op_ids:
            self._op_ids[op] = len(self.ops)
            self.ops.append(op)
        return self._op_ids[op]

    def run(self, op: int, dur_ns: int, *, inputs: list[int] | None = None, track_input: bool = False) -> None:
        """Run a kernel on the compute stream of every active rank, after ``inputs`` (an event) where given."""
        clock, gap = self.clock, self.gap_ns
        for rank in self.active:
            start = clock[rank]
            ready = -1
            if inputs is not None:
                start = max(start, inputs[rank])
                if track_input:
                    ready = inputs[rank]
            if start:  # the step's first kernel opens the step
                start += gap
            took = round(dur_ns * self.rank_factor[rank])
            self.rows[rank].append(Row(op, start, took, ready))
            clock[rank] = start + took

    def run_aside(self, op: int, dur_ns: int, stream: str, after: list[int]) -> list[int]:
        """Run a kernel on another stream after an event; return the event of its end."""
        free = self.free[stream]
        done = [0] * self.world
        for rank in self.active:
            start = max(free[rank], after[rank])
            took = round(dur_ns * self.rank_factor[rank]) if stream != COPY else dur_ns
            self.rows[rank].append(Row(op, start, took, -1))
            done[rank] = free[rank] = start + took
        return done

    def mark(self) -> list[int]:
        """Return the event "all that was issued on the compute stream so far is done"."""
        return list(self.clock)

    def wait(self, event: list[int]) -> None:
        """Make the compute stream wait for an event."""
        for rank in self.active:
            self.clock[rank] = max(self.clock[rank], event[rank])

    def collective(
        self, op: int, kind: str, wire_bytes: int, after: list[int] | None = None, *, ring: bool = False
    ) -> list[int]:
        """Run one call on every active communicator of a kind; return the event of its end. ``ring``: a turn in which
        each member sends to the next one only."""
        after = self.clock if after is None else after
        free, ports = self.free[kind], self.ports
        done = [0] * self.world
        active = self.active
        for group in self._members[kind]:
            if group.ranks[0] not in active:
                continue
            begin = max([ports[port] for port in group.ports])
            arrivals = [max(free[rank], after[rank]) for rank in group.ranks]
            cost = group.neighbour_cost if ring else group.cost
            end = max(begin, *arrivals) + round(cost(wire_bytes) * self.wire_factor)
            for rank, arrival in zip(group.ranks, arrivals, strict=True):
                self.rows[rank].append(Row(op, arrival, end - arrival, -1))
                free[rank] = done[rank] = end
            for port in group.ports:
                ports[port] = end
        return done

    def transfer(self, send: int, receive: int, source: int, target: int, wire_bytes: int) -> None:
        """Send from one pipeline stage to the next. Both sides start behind what their compute streams were given
        before, so a stage that is ahead waits inside its kernel."""
        free = self.free["pp"]
        begins = {rank: max(free[rank], self.clock[rank]) for rank in (source, target)}
        pair = (self.cards[source], self.cards[target])
        kind = self._class_number(*pair)
        ports = [rank * self.ports_per_rank + kind for rank in begins]
        cost = transfer_cost(self.fabric, pair, efficiency=self.fabric.in_model_efficiency)
        end = max(*begins.values(), *(self.ports[port] for port in ports)) + cost(wire_bytes)
        for rank, op in ((source, send), (target, receive)):
            self.rows[rank].append(Row(op, begins[rank], end - begins[rank], -1))
            free[rank] = end
        for port in ports:
            self.ports[port] = end

    def _class_number(self, a: int, b: int) -> int:
        return [one.name for one in self.fabric.classes].index(self.fabric.link(a, b).name)

    def pause(self, host_ns: int) -> None:
        """Leave the compute stream idle while the host works."""
        for rank in self.active:
            self.clock[rank] += host_ns

    def snapshot(self, pending: list[int] | None) -> tuple[int, tuple[int, ...]]:
        """Return (base, state): the active ranks' times relative to the earliest compute stream.

        A stream or port that became free before its rank's compute stream has no influence on what is issued from now
        on, so such times are clipped: equal states have equal futures, shifted by the difference of their bases.
        """
        base = min(self.clock[rank] for rank in self.active)
        state: list[int] = []
        for rank in self.active:
            now = self.clock[rank]
            state.append(now - base)
            state += [max(free[rank], now) - base for name, free in self.free.items() if name != COMPUTE]
            first = rank * self.ports_per_rank
            state += [max(port, now) - base for port in self.ports[first : first + self.ports_per_rank]]
            if pending is not None:
                state.append(max(pending[rank], now) - base)
        return base, tuple(state)

    def restore(self, base: int, state: tuple[int, ...], pending: list[int] | None) -> None:
        """Set the active ranks to a state taken by :meth:`snapshot`, at another base."""
        values = iter(state)
        for rank in self.active:
            self.clock[rank] = base + next(values)
            for name, free in self.free.items():
                if name != COMPUTE:
                    free[rank] = base + next(values)
            first = rank * self.ports_per_rank
            for port in range(first, first + self.ports_per_rank):
                self.ports[port] = base + next(values)
            if pending is not None:
                pending[rank] = base + next(values)
