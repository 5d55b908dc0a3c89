"""One denoise step of a form on actual cards: the timeline from which both the log and the profiler's files come.

>>> step = simulate_step(HostModel(), Split(usp=4), (0, 1, 2, 3))
>>> step.step_ns, step.kernels(0)  # wall clock of the slowest rank, every kernel of rank 0 in order of its start

The timeline of a layer is a (max, +) function of the state it starts in, so when a state of all streams and ports comes
back relative to the clock, the layer is not simulated again but repeated, which is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from virtualhost.host.model import Fabric, HostModel
from virtualhost.host.split import Split, model_refusal, stage_layers
from virtualhost.step.layers import Layer
from virtualhost.step.simulator import AI_CPU, Group, Op, Row, Simulator, transfer_cost


class SplitError(ValueError):
    """The engine cannot start this form; the message is what it logs."""


class Kernel(NamedTuple):
    """One kernel of one rank; see :class:`virtualhost.step.simulator.Op` for what it is. ``call`` counts the calls of a
    communicator from 0 (−1: not a collective)."""

    op: Op
    start_ns: int
    dur_ns: int
    call: int
    ready_ns: int

    @property
    def end_ns(self) -> int:
        """When the kernel ends."""
        return self.start_ns + self.dur_ns


def call_key(kernel: Kernel) -> int:
    """Return what tells the calls of a communicator apart on all its ranks: their running number, and −1 for every send
    and receive, which are all alike but are numbered differently on their two ranks."""
    return -1 if kernel.op.family in ("send", "receive") else kernel.call


Segment = tuple[int, dict[int, tuple[Row, ...]]]  # base, rows of each rank relative to it


@dataclass(frozen=True)
class StepTimeline:
    """Kernels of all ranks over one step. The step of each rank begins at 0 with its first kernel and ends with its
    last one. ``stretch`` multiplies all times; ``warped`` holds the kernels of a step whose times no longer follow from
    the segments (a captured one)."""

    model: HostModel
    split: Split
    cards: tuple[int, ...]
    groups: tuple[Group, ...]
    ops: tuple[Op, ...]
    segments: tuple[Segment, ...]
    stage_ns: tuple[int, ...]
    stretch: float = 1.0
    warped: tuple[tuple[Kernel, ...], ...] | None = None

    @property
    def step_ns(self) -> int:
        """Wall clock of the step: its slowest rank."""
        return max(self.stage_ns)

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self.split.world)

    def group(self, rank: int, kind: str) -> Group:
        """Return the communicator of one kind that a rank is a member of."""
        return self._group_of[rank, kind]

    @cached_property
    def _group_of(self) -> dict[tuple[int, str], Group]:
        return {(rank, group.kind): group for group in self.groups for rank in group.ranks}

    @cached_property
    def transit_ns(self) -> dict[tuple[int, int], int]:
        """The pure transfer time of each call, its last member's, by (communicator, :func:`call_key`)."""
        found: dict[tuple[int, int], int] = {}
        for rank in self.ranks:
            for kernel in self.kernels(rank):
                if kernel.op.family:
                    key = self.group(rank, kernel.op.stream).gid, call_key(kernel)
                    found[key] = min(found.get(key, kernel.dur_ns), kernel.dur_ns)
        return found

    @cached_property
    def _kernels(self) -> dict[int, tuple[Kernel, ...]]:
        return {}

    def kernels(self, rank: int) -> tuple[Kernel, ...]:
        """Return the kernels of one rank in order of start, on integer nanoseconds."""
        if self.warped is not None:
            return self.warped[rank]
        if rank not in self._kernels:
            self._kernels[rank] = self._expand(rank)
        return self._kernels[rank]

    def _expand(self, rank: int) -> tuple[Kernel, ...]:
        ops, stretch = self.ops, self.stretch
        rows = [
            (
                base + row.start_ns,
                base + row.start_ns + row.dur_ns,
                row.op,
                base + row.ready_ns if row.ready_ns >= 0 else -1,
            )
            for base, block in self.segments
            for row in block.get(rank, ())
        ]
        if stretch != 1.0:
            rows = [
                (round(a * stretch), round(b * stretch), op, round(at * stretch) if at >= 0 else -1)
                for a, b, op, at in rows
            ]
        calls: dict[str, int] = {}
        found = []
        for start, end, number, ready in rows:  # rows of a communicator are in issue order
            op, call = ops[number], -1
            if op.family:
                call = calls.get(op.stream, 0)
                calls[op.stream] = call + 1
            found.append(Kernel(op, start, end - start, call, ready))
        found.sort(key=lambda kernel: kernel.start_ns)
        return tuple(found)

    def scaled(self, factor: float) -> StepTimeline:
        """Return the same step with every time multiplied, as noise does. A captured step cannot be scaled any more."""
        if self.warped is not None:
            raise ValueError("scale the step before it is captured")
        stage = tuple(round(one * factor) for one in self.stage_ns)
        return replace(self, stage_ns=stage, stretch=self.stretch * factor)


def collective_ns(fabric: Fabric, family: str, tensor_bytes: int, cards: Sequence[int], *, concurrency: int = 1) -> int:
    """Return the isolated time of one collective (``alltoall``, ``allgather`` of a shard, ``allreduce``) on cards.

    This is what a micro-benchmark sees: full link bandwidth, and with ``concurrency`` communicators at once each waits
    for its turn on the links.
    """
    members = len(cards)
    wire = {
        "alltoall": tensor_bytes * (members - 1) // members,
        "allgather": tensor_bytes * (members - 1),
        "allreduce": 2 * tensor_bytes * (members - 1) // members,
    }[family]
    return concurrency * transfer_cost(fabric, cards)(wire)


@lru_cache(maxsize=64)
def simulate_step(model: HostModel, split: Split, cards: tuple[int, ...]) -> StepTimeline:
    """Return the timeline of one denoise step of a form; rank k runs on ``cards[k]``.

    Raises :class:`SplitError` with the engine's reason when the model cannot be split so, or the cards do not match it.
    """
    reason = model_refusal(model.dit, split)
    if reason is None and len(cards) != split.world:
        reason = f"the form needs {split.world} cards and {len(cards)} are visible"
    if reason is not None:
        raise SplitError(reason)
    return _Step(model, split, cards).timeline()


class _Step:
    """Issues a whole step: input, the layers of every branch and pipeline stage, output, sampler."""

    def __init__(self, model: HostModel, split: Split, cards: tuple[int, ...]) -> None:
        self.model, self.split, self.cards = model, split, cards
        self.sim = Simulator(model, split, cards)
        self.layer = Layer(self.sim, model, split)
        self.segments: list[Segment] = []
        self.seen: dict[tuple[object, ...], tuple[Segment, int, tuple[int, ...]]] = {}
        self.latent_bytes = self.layer.tokens * 64 * model.dit.bytes_per_value

    def timeline(self) -> StepTimeline:
        sim, split = self.sim, self.split
        stages = [tuple(r for r in range(split.world) if split.place(r)["pp"] == k) for k in range(split.pp)]
        for turn in self._turns():
            busy = [tuple(rank for rank in ranks if rank in turn) for ranks in stages]
            for stage, ranks in enumerate(busy):
                sim.active = ranks
                if stage:
                    self._handover(busy[stage - 1], ranks)
                else:
                    self._edge(64)
                self._layers(stage_layers(self.model.dit, split)[stage])
        self._finish(stages)
        return StepTimeline(
            self.model, split, self.cards, sim.groups, tuple(sim.ops), tuple(self.segments), self._stage_ns()
        )

    def _turns(self) -> Iterator[set[int]]:
        """The ranks that compute in each turn: the CFG group deals the branches out, the last turn may leave some idle
        (vllm-omni 0.30, ``diffusion/distributed/cfg_parallel.py:182-330``)."""
        every, alone = range(self.split.world), self.model.behaviour.inactive_guidance
        branches = 1 if alone else self.model.dit.guidance_branches
        for first in range(0, branches, self.split.cfg):
            yield {rank for rank in every if alone or first + self.split.place(rank)["cfg"] < branches}

    def _stage_ns(self) -> tuple[int, ...]:
        ends = [0] * self.split.world
        for base, block in self.segments:
            for rank, rows in block.items():
                ends[rank] = max(ends[rank], base + max((row.start_ns + row.dur_ns for row in rows), default=0))
        return tuple(ends)

    def _flush(self, base: int = 0) -> Segment:
        """Move the rows issued so far into a segment, relative to ``base``."""
        block = {
            rank: tuple(
                Row(op, start - base, took, ready - base if ready >= 0 else -1) for op, start, took, ready in rows
            )
            for rank, rows in enumerate(self.sim.rows)
            if rows
        }
        for rows in self.sim.rows:
            rows.clear()
        segment = (base, block)
        self.segments.append(segment)
        return segment

    def _edge(self, inner: int) -> None:
        """Patch embedding or output head: a product with the latent's 64 values per token."""
        self.layer.matmul(inner, self.model.dit.hidden)
        self.layer.vector("Add", 3 * self.layer.hidden_bytes)

    def _layers(self, count: int) -> None:
        """Issue the layers of the active pipeline stage, repeating those whose starting state was met before."""
        sim, layer, jitter = self.sim, self.layer, self.model.behaviour.jitter
        offloaded = self.split.offload.endswith("layerwise-offload")
        weights: list[int] | None = None
        self._flush()
        for index in range(count):
            prefetch = offloaded and index + 1 < count
            pattern = index % 77 if jitter else 0
            base, state = sim.snapshot(weights)
            key = (sim.active, prefetch, weights is None, pattern, state)
            if key in self.seen:
                (_, block), advance, after = self.seen[key]
                self.segments.append((base, block))
                weights = [0] * sim.world if prefetch else None
                sim.restore(base + advance, after, weights)
                continue
            self._set_jitter(pattern)
            weights = layer.issue(weights, prefetch=prefetch)
            end, after = sim.snapshot(weights)
            self.seen[key] = (self._flush(base), end - base, after)
        self._set_jitter(None)

    def _set_jitter(self, pattern: int | None) -> None:
        """Spread kernel and transfer times over layers and ranks; the pattern repeats every 77 layers."""
        sim, jitter = self.sim, self.model.behaviour.jitter if pattern is not None else 0.0
        layer = pattern or 0
        sim.rank_factor = [
            factor * (1 + jitter * ((layer * 7 + rank * 3) % 11 - 5) / 5) for rank, factor in enumerate(sim.card_factor)
        ]
        sim.wire_factor = 1 + jitter * ((layer * 3) % 7 - 3) / 3

    def _handover(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Send the residual stream from one pipeline stage to the next; the receiver waits inside its kernel."""
        sim = self.sim
        send, receive = (
            sim.op(Op(name, f"hcom_{name}_", "HCCL", "pp", name, "handover")) for name in ("send", "receive")
        )
        for source, target in zip(before, after, strict=True):
            sim.transfer(send, receive, source, target, self.layer.hidden_bytes)
        sim.wait(sim.free["pp"])

    def _finish(self, stages: list[tuple[int, ...]]) -> None:
        """Output head, gathers of the sequence and of the guidance branches, and the sampler's own kernels."""
        sim, layer, split = self.sim, self.layer, self.split
        sim.active = stages[-1]
        self._edge(64)
        if split.sequence_degree > 1 and not self.model.behaviour.inactive_sequence:
            degree = split.sequence_degree
            op = sim.op(Op("allGather", "hcom_allGather_", "HCCL", "sp", "allGather", "output"))
            sim.wait(sim.collective(op, "sp", self.latent_bytes * (degree - 1)))
        if split.cfg > 1 and not self.model.behaviour.inactive_guidance:
            sim.wait(layer.allgather("cfg", self.latent_bytes * split.sequence_degree, "guidance"))
        sim.active = tuple(range(split.world))
        if split.pp > 1:
            op = sim.op(Op("broadcast", "hcom_broadcast_", "HCCL", "pp", "broadcast", "output"))
            sim.wait(sim.collective(op, "pp", self.latent_bytes * split.sequence_degree))
        layer.vector("Sub", 3 * self.latent_bytes)
        cast = sim.op(Op("trans_Cast_5", "Cast", "AI_CPU", AI_CPU))
        sim.run_aside(cast, 110_000, AI_CPU, sim.mark())
        sim.pause(max(round(self.model.rates.step_host_us * 1000), 110_000))
        for name in ("Mul", "Add", "Cast"):
            layer.vector(name, 3 * self.latent_bytes)
        self._flush()
