"""A rank's step, decomposed as the profiler's step table does it, and what capturing a step does to its timeline."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from virtualhost.step.timeline import Kernel, StepTimeline

COMPUTE_CORES = frozenset(("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"))
Interval = tuple[int, int]


class StepFigures(NamedTuple):
    """One row of the step table, in integer nanoseconds: communication = exposed + overlapped, and stage = computing +
    exposed + free."""

    computing_ns: int
    exposed_ns: int
    overlapped_ns: int
    communication_ns: int
    free_ns: int
    stage_ns: int


def merged(ordered: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals that are ordered by start."""
    found: list[Interval] = []
    for start, end in ordered:
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        elif end > start:
            found.append((start, end))
    return found


def without(these: Sequence[Interval], those: Sequence[Interval]) -> list[Interval]:
    """Return what of ``these`` lies outside ``those``; both disjoint and ordered."""
    found: list[Interval] = []
    at = 0
    for start, end in these:
        while at < len(those) and those[at][1] <= start:
            at += 1
        position, cut = start, at
        while cut < len(those) and those[cut][0] < end:
            if those[cut][0] > position:
                found.append((position, those[cut][0]))
            position = max(position, those[cut][1])
            cut += 1
        if position < end:
            found.append((position, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    """Return the total length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def exposed_intervals(kernels: Sequence[Kernel]) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """Return the unions of computing and of communication, and what of the latter no compute kernel covers."""
    computing = merged((k[1], k[1] + k[2]) for k in kernels if k[0].core in COMPUTE_CORES)
    communication = merged((k[1], k[1] + k[2]) for k in kernels if k[0].family)
    return computing, communication, without(communication, computing)


def step_figures(timeline: StepTimeline, rank: int) -> StepFigures:
    """Return the step table's row of one rank: the stage runs from the rank's first kernel to its last end."""
    kernels = timeline.kernels(rank)
    computing, communication, exposed = exposed_intervals(kernels)
    stage = max(k.end_ns for k in kernels) - kernels[0].start_ns
    parts = length(computing), length(exposed), length(communication)
    overlapped, free = parts[2] - parts[1], stage - parts[0] - parts[1]
    return StepFigures(parts[0], parts[1], overlapped, parts[2], free, stage)


def captured(timeline: StepTimeline, inflation: float) -> StepTimeline:
    """Return the step as a running profiler sees it: computing and idle time stretched by ``inflation`` (≥ 1), the
    seconds of exposed communication as they are, exactly, on every rank."""
    kernels, stages = [], []
    for rank in timeline.ranks:
        before = timeline.kernels(rank)
        exposed = exposed_intervals(before)[2]
        starts, done = [start for start, _ in exposed], [0]
        for start, end in exposed:
            done.append(done[-1] + end - start)

        def seen(at: int, starts: list[int] = starts, done: list[int] = done, exposed: list[Interval] = exposed) -> int:
            number = bisect_right(starts, at)
            kept = done[number] - (max(0, exposed[number - 1][1] - at) if number else 0)
            return kept + round((at - kept) * inflation)

        after = []
        for kernel in before:
            start = seen(kernel.start_ns)
            ready = seen(kernel.ready_ns) if kernel.ready_ns >= 0 else -1
            after.append(Kernel(kernel.op, start, seen(kernel.end_ns) - start, kernel.call, ready))
        kernels.append(tuple(after))
        stages.append(seen(timeline.stage_ns[rank]))
    return replace(timeline, stage_ns=tuple(stages), warped=tuple(kernels), stretch=timeline.stretch)
