"""One request in the log and in the answer: stage lines of all ranks in the order of time, the bar, stage durations.

In request mode a stage is logged when it ends, ``forward`` last. With ``--step-execution`` ``forward`` is not called:
each step is a ``diffuse`` line, and no bar is drawn (``diffusion/worker/diffusion_model_runner.py:1396-1433``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from virtualhost.server.exchange import Ask, Chunk
from virtualhost.server.grammar import Grammar
from virtualhost.server.pipelines import Pipeline
from virtualhost.server.progress import states


@dataclass(frozen=True)
class Spent:
    """What the parts of a request took on one rank, in seconds; ``encodes_s`` are those of each text."""

    encodes_s: tuple[float, ...]
    steps_s: tuple[float, ...]
    decode_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        """The whole of forward."""
        return sum(self.encodes_s) + sum(self.steps_s) + self.decode_s + self.overhead_s


class Stage(NamedTuple):
    """A stage that ended ``at_s`` seconds after its request began."""

    at_s: float
    name: str
    seconds: float


@dataclass(frozen=True)
class RequestLog:
    """How requests of one server are logged. ``per_step``: a plug-in's pipeline that logs each step of its loop;
    ``branches`` are those of a guided step."""

    grammar: Grammar
    pipeline: Pipeline
    stage_lines: bool
    stepwise: bool = False
    per_step: bool = False
    bar: bool = True
    branches: int = 2

    def stages(self, spent: Spent) -> list[Stage]:
        """The stages of one rank, in the order in which they end."""
        pipeline, found = self.pipeline, []
        at_s = 0.0
        for seconds in spent.encodes_s:
            at_s += seconds
            found += [Stage(at_s, pipeline.encoder, seconds)]
        ends = list(accumulate(spent.steps_s, initial=at_s))
        at_s = ends[-1]
        if self.stepwise:
            found += [Stage(end, "diffuse", step) for end, step in zip(ends[1:], spent.steps_s, strict=True)]
        elif self.per_step:
            found += [Stage(at_s, pipeline.loop, step) for step in spent.steps_s]
        else:
            found += [Stage(at_s, pipeline.loop, sum(spent.steps_s))]
        found += [Stage(at_s + spent.decode_s, pipeline.decoder, spent.decode_s)]
        if not self.stepwise:
            found += [Stage(spent.total_s, "forward", spent.total_s)]
        return [Stage(end, f"{pipeline.name}.{name}", seconds) for end, name, seconds in found if name]

    def chunks(self, begun_s: float, ranks: Sequence[Spent], *, spoiled: int | None = None) -> list[Chunk]:
        """The text of a request that begins at ``begun_s``, rank 0 first; rank ``spoiled`` shares its line with rank 0
        when its loop ends."""
        found = [(at_s, 1, text) for at_s, text in self._bar_states(ranks[0])]
        drawn_s = max(
            (at_s for at_s, _, _ in found), default=0.0
        )  # no rank's line lands behind a bar that is not closed
        encoder, loop = (f"{self.pipeline.name}.{name}" for name in (self.pipeline.encoder, self.pipeline.loop))
        for rank, spent in enumerate(ranks if self.stage_lines else ()):
            for stage in self.stages(spent):
                line = self.grammar.stage(rank, begun_s + stage.at_s, stage.name, stage.seconds)
                if rank == spoiled and stage.name == loop:
                    line = self.grammar.interleave(line, 0, begun_s + stage.at_s)
                if stage.name == encoder:
                    found.append((stage.at_s, 0, line))
                else:
                    found.append((max(stage.at_s, drawn_s), 2, line))
        return [Chunk(at_s, text) for at_s, _, text in sorted(found, key=itemgetter(0, 1))]

    def guidance(self, ask: Ask, clock_s: float, *, first: bool) -> Chunk:
        """What every worker of a CFG form says of a request that leaves ranks of the group nothing to do.

        Without a second branch a pipeline that checks it warns at each request. More ranks than branches are told once
        a process (``diffusion/distributed/cfg_parallel.py:313``).
        """
        cfg, (file, _, number) = self.grammar.split.cfg, self.pipeline.checks.partition(":")
        why = self.pipeline.unguided_because(ask) if cfg > 1 else ""
        said = why if self.pipeline.guidance.warns else ""
        where = f"{file}:{int(number) + (0 if 'true_cfg' in why else 4)}"  # the second warning stands below the first
        if not why and cfg > self.branches and first:
            where, idle = "cfg_parallel.py:313", cfg - self.branches
            said = f"cfg_parallel_size={cfg} > n_branches={self.branches}, {idle} GPU(s) will be idle for CFG"
        ranks = range(self.grammar.split.world if said else 0)
        lines = (self.grammar.worker_line(rank, clock_s, where, said, level="WARNING") for rank in ranks)
        return Chunk(0.0, "".join(lines))

    def durations(self, spent: Spent) -> dict[str, float]:
        """What the answer tells: the stages of rank 0 in seconds, summed by name, then the orchestrator's own figures
        in milliseconds (``entrypoints/omni_base.py:614-628``, ``engine/orchestrator.py:2846``)."""
        told: dict[str, float] = {}
        if self.stage_lines:
            for _, name, seconds in self.stages(spent):
                told[name] = told.get(name, 0.0) + seconds
        return told | {"queue_wait_ms": 0.412, "stage_0_gen_ms": spent.total_s * 1000 + 1.9}

    def _bar_states(self, spent: Spent) -> list[Chunk]:
        """The states of the bar, after which the loop's own lines are written."""
        if not (self.bar and self.pipeline.bar) or self.stepwise:
            return []
        ends = list(accumulate(spent.steps_s, initial=sum(spent.encodes_s)))
        drawn = states(spent.steps_s)
        return [
            Chunk(ends[done], (f"{self.grammar.workers[0]} " if index == 0 else "") + text)
            for index, (done, text) in enumerate(drawn)
        ]
