"""A serving session in LightX2V's words: the same cards, form, steps, faults and pictures as vllm-omni's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import refusal
from virtualhost.host.state import HostState
from virtualhost.lightx2v.arguments import Configured
from virtualhost.lightx2v.log import LightX2VGrammar, LightX2VLog
from virtualhost.server.exchange import Chunk, Outcome
from virtualhost.server.pipelines import Guidance
from virtualhost.server.serving import BREAKS, ServingSession


class LightX2VSession(ServingSession):
    """A server with one form on one group of cards, as its configuration says it."""

    def __init__(self, scenario: Scenario, configured: Configured, state: HostState | None = None) -> None:
        launch = configured.launch
        self.values: Mapping[str, Any] = configured.values
        self._timed, self._host = configured.timed, launch.host
        super().__init__(scenario, launch.split, launch.cards, state, port=launch.port, options=launch.options)
        # Guidance is a switch of the launch (models/networks/qwen_image/model.py:107); no request turns it off.
        self.pipeline = replace(self.pipeline, guidance=Guidance.SCALE)

    @property
    def guidance(self) -> float:
        """The scale of every request; 0 where the switch is off."""
        return float(self.values.get("sample_guide_scale", 0.0)) if self.values["enable_cfg"] else 0.0

    def adopt(self, pids: Sequence[int], server: int = 0) -> None:
        """Take these processes as the ranks."""
        super().adopt(pids, server)
        serving = self.scenario.serving
        grammar = LightX2VGrammar(self.scenario.log, serving.epoch, self.split, self.pids, server=server)
        grammar.epoch = serving.epoch
        self.grammar = grammar
        self._log = LightX2VLog(grammar, self.pipeline, self._timed and self.scenario.log.stage_lines)

    def startup(self) -> Outcome:
        """Start the server: ranks, groups, configuration, ready; or the fault or refusal that ends it."""
        grammar, clock, ready = self.grammar, self.clock_s, self.scenario.serving.startup_s
        assert isinstance(grammar, LightX2VGrammar)
        chunks = [Chunk(0.0, grammar.first_lines(clock, self.split.world))]
        early = self.plan.at_launch("start", *BREAKS, "port_in_use")
        if early is not None:
            return self._broken(early, chunks, 1.0)
        reason = refusal(self.scenario.dit, self.asked)
        if reason is not None:
            return self._ended(chunks, 1.0, "exit", grammar.crash(0, reason))
        chunks.append(Chunk(ready / 4, grammar.group_lines(clock + ready / 4, self.values)))
        fault = self.plan.at_launch("load", *BREAKS, "comm_init")
        if fault is not None:
            return self._broken(fault, chunks, ready / 2)
        if outcome := self._does_not_fit(chunks):
            return outcome
        self._serving = True
        return self._advance([*chunks, Chunk(ready, grammar.ready_lines(clock + ready, self._host, self.port))], ready)
