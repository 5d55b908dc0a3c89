"""The form that is really in effect: what faults and the model's pipeline leave of what was asked for."""

from __future__ import annotations

from dataclasses import replace

from virtualhost.host.faults import FaultPlan
from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Memory, Split, memory
from virtualhost.host.state import HostState
from virtualhost.server.exchange import parse_split
from virtualhost.server.pipelines import Options
from virtualhost.step.timeline import StepTimeline, simulate_step


class InEffect:
    """The split, the pipeline, the steps and the memory of one server.

    ``split`` is what its log tells of: the form that was asked for, unless a fault puts another one in its place.
    """

    def __init__(
        self,
        scenario: Scenario,
        asked: Split,
        cards: tuple[int, ...],
        state: HostState,
        plan: FaultPlan,
        options: Options,
    ) -> None:
        self._scenario, self._cards, self._state, self._plan = scenario, cards, state, plan
        fault = plan.whole_session("not_applied")
        self.split = parse_split(fault.applied) if fault else asked
        self.pipeline = options.pipeline(scenario.log)
        if plan.whole_session("dead_split"):
            self.pipeline = replace(self.pipeline, transformers=())
        self.dead_offload = plan.whole_session("dead_offload")
        chunks = 1 if plan.whole_session("dead_masking") else self.split.mask_chunks
        offload = "" if self.dead_offload else self.split.offload
        self._at_work = replace(self.split, mask_chunks=chunks, offload=offload)  # whose step is computed
        self._timelines: dict[bool, StepTimeline] = {}

    @property
    def whole_sequences(self) -> bool:
        """Whether the split of the sequence is dead: its groups stand, and no transformer is hooked."""
        return not self.pipeline.transformers and self.split.sequence_degree > 1

    def timeline(self, *, guided: bool = True) -> StepTimeline:
        """One steady step, with the links as they were when it was first asked for: with the model's guidance branches,
        or with one that every rank computes."""
        if guided not in self._timelines:
            model = self._scenario.host_model(LiveHost(self._scenario, self._state).links())
            behaviour = replace(model.behaviour, inactive_guidance=not guided)
            if self.whole_sequences:
                behaviour = replace(behaviour, inactive_sequence=True)
            if fault := self._plan.whole_session("alltoallv"):
                behaviour = replace(behaviour, uneven_alltoall=max(fault.factor, 1.01))
            model = replace(model, behaviour=behaviour)
            self._timelines[guided] = simulate_step(model, self._at_work, self._cards[: self.split.world])
        return self._timelines[guided]

    @property
    def memory(self) -> Memory:
        """What one rank needs while it serves."""
        split = replace(self._at_work, usp=1, ring=1, ag=1) if self.whole_sequences else self._at_work
        return memory(self._scenario.dit, split)

    @property
    def memory_mb(self) -> int:
        """Device memory of one rank while it serves."""
        return round(self.memory.card_gb * 1e9 / 2**20)
