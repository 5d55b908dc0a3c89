"""A log taken apart: stage lines and bars by the request that they belong to, and what was logged beside them.

A video request is announced by its sampling parameters. Nothing at INFO announces an image request (0.30.0,
``entrypoints/openai/api_server.py:2207``): it begins with its first line after the server's start and is over for a
rank with that rank's ``forward``, which is logged last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from anchormatrix.engines.logs.bars import Bars
from anchormatrix.engines.logs.lines import Worker
from anchormatrix.engines.vllm_omni.stages import is_forward


class StageLine(NamedTuple):
    """One stage line: its writer, its time in seconds, its stamp, and what of its prefix is not understood."""

    worker: Worker
    name: str
    seconds: float
    stamp: str
    foreign: str


@dataclass
class Segment:
    """The log of one request. ``announced``: it began with its sampling parameters; else nothing tells its ``steps``
    and they are 0. ``status`` is the HTTP status sent, ``stamp`` when it began."""

    steps: int
    announced: bool = True
    stamp: str = ""
    stages: list[StageLine] = field(default_factory=list)
    bars: Bars = field(default_factory=dict)
    unusable: int = 0
    status: int | None = None
    lost: bool = False
    profiled: bool = False

    def over_for(self, worker: Worker, stage: str) -> bool:
        """Whether a line of a worker is of a later request than this one, which nothing announced."""
        mine = [line.name for line in self.stages if line.worker == worker]
        if worker[0] and any(is_forward(name) for name in mine):
            return True
        return self.status is not None and (not mine or stage in mine or not worker[0])


@dataclass
class RawLog:
    """A log taken apart. ``groups`` are the group sizes that workers printed while starting, ``checks`` what they found
    of their own results then: what was compared, the relative distance (``inf`` and ``nan`` too) and its limit.
    ``features`` are the workers' lines on launch features, at any time; ``early`` what was logged before any request;
    ``spoiled`` counts unusable lines by reason; ``missing`` are methods that the pipeline's profiler did not find.
    ``numbers`` are the global ranks of processes. ``serving``: the server has said that it takes requests;
    ``accepted`` is the status of a job that has logged nothing yet."""

    workers: dict[Worker, None] = field(default_factory=dict)
    groups: dict[str, set[int]] = field(default_factory=dict)
    applied: dict[str, None] = field(default_factory=dict)
    checks: list[tuple[str, float, float]] = field(default_factory=list)
    features: list[tuple[Worker, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    early: Segment = field(default_factory=lambda: Segment(0))
    spoiled: Counter[str] = field(default_factory=Counter)
    missing: dict[str, None] = field(default_factory=dict)
    lines: int = 0
    copies: int = 1
    profiling: bool = False
    accepted: int | None = None
    serving: bool = False
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def now(self) -> Segment:
        """The request that lines belong to."""
        return self.segments[-1] if self.segments else self.early

    def request_of(self, worker: Worker, stage: str = "") -> Segment:
        """The request that a worker's line belongs to; one that nothing announced may begin with it."""
        if not self.serving or (self.segments and self.now.announced):
            return self.now
        if not self.segments or self.now.over_for(worker, stage):
            self.segments.append(Segment(0, announced=False, profiled=self.profiling))
        return self.now

    def answer(self, status: int | None, *, image: bool) -> None:
        """Note the status of an answer. An image request that logged nothing is a request all the same."""
        nothing = not self.segments or (not self.now.announced and self.now.status is not None)
        if image and self.serving and nothing:
            self.segments.append(Segment(0, announced=False, profiled=self.profiling))
        if self.segments:
            self.now.status = status

    def settle(self) -> None:
        """Where requests are announced, what lies outside them is none."""
        if any(segment.announced for segment in self.segments):
            for stray in [segment for segment in self.segments if not segment.announced]:
                self.segments.remove(stray)
                self.early.stages += stray.stages
