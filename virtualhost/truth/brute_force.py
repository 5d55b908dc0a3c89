"""The truth of a timeline, by brute force: what every right analysis of its profile must find.

Only tests and campaigns read it. Definitions: computing is the union of the intervals of kernels on compute cores
(AI_CORE, AI_VECTOR_CORE, MIX_AIC, MIX_AIV); communication the union of collectives; overlapped their intersection;
exposed = communication − overlapped; free = stage − computing − exposed; the stage runs from a rank's first kernel to
its last end. All times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from virtualhost.host.split import mask_chunks
from virtualhost.step.simulator import COMPUTE, COPY
from virtualhost.step.timeline import Kernel, StepTimeline

COMPUTE_CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV")
RELEASE_NS = 100_000
Interval = tuple[int, int]


def sweep(sets: Sequence[Iterable[Interval]], keep: Callable[[Sequence[bool]], bool]) -> list[Interval]:
    """Return where ``keep`` holds of "inside a set" flags: every set operation by one walk over all the edges."""
    edges: list[tuple[int, int, int]] = []
    for number, intervals in enumerate(sets):
        for start, end in intervals:
            if end > start:
                edges += [(start, number, 1), (end, number, -1)]
    edges.sort()
    depth = [0] * len(sets)
    found: list[Interval] = []
    position = 0
    while position < len(edges):
        at = edges[position][0]
        while position < len(edges) and edges[position][0] == at:
            depth[edges[position][1]] += edges[position][2]
            position += 1
        inside = position < len(edges) and keep([one > 0 for one in depth])
        if inside:
            following = edges[position][0]
            if found and found[-1][1] == at:
                found[-1] = (found[-1][0], following)
            else:
                found.append((at, following))
    return found


def measure(intervals: Iterable[Interval]) -> int:
    """Return the total length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def spans(kernels: Iterable[Kernel]) -> list[Interval]:
    """Return the intervals of kernels."""
    return [(kernel.start_ns, kernel.start_ns + kernel.dur_ns) for kernel in kernels]


def union(*sets: Iterable[Interval]) -> list[Interval]:
    """Return the union as disjoint intervals."""
    return sweep(sets, any)


def common(*sets: Iterable[Interval]) -> list[Interval]:
    """Return the intersection of all sets."""
    return sweep(sets, all)


def step_figures(timeline: StepTimeline, rank: int) -> dict[str, int]:
    """Return the step decomposition of one rank."""
    kernels = timeline.kernels(rank)
    compute = spans(k for k in kernels if k.op.core in COMPUTE_CORES)
    collectives = spans(k for k in kernels if k.op.family)
    computing, communication = measure(union(compute)), measure(union(collectives))
    overlapped = measure(common(compute, collectives))
    stage = max(k.start_ns + k.dur_ns for k in kernels) - kernels[0].start_ns
    return {
        "computing_ns": computing,
        "exposed_ns": communication - overlapped,
        "overlapped_ns": overlapped,
        "communication_ns": communication,
        "free_ns": stage - computing - (communication - overlapped),
        "stage_ns": stage,
    }


def rank_truth(timeline: StepTimeline, rank: int) -> dict[str, Any]:
    """Return everything an analysis of one rank must find."""
    kernels = timeline.kernels(rank)
    step = step_figures(timeline, rank)
    by_family: dict[tuple[str, int], list[Kernel]] = {}
    by_stream: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        if kernel.op.family:
            by_family.setdefault((kernel.op.family, timeline.group(rank, kernel.op.stream).gid), []).append(kernel)
        by_stream.setdefault((kernel.op.stream, kernel.op.core), []).append(kernel)
    families = [_family(timeline, name, gid, calls) for (name, gid), calls in sorted(by_family.items())]
    unions = {key: union(spans(calls)) for key, calls in sorted(by_family.items())}
    keys = list(unions)
    overlap = [
        {
            "a": list(a),
            "b": list(b),
            "shared_ns": (shared := measure(common(unions[a], unions[b]))),
            "share": shared / min(measure(unions[a]), measure(unions[b])),
        }
        for number, a in enumerate(keys)
        for b in keys[number + 1 :]
    ]
    streams = [
        {"stream": stream, "core": core, "kernels": len(found), "total_ns": sum(k.dur_ns for k in found)}
        for (stream, core), found in sorted(by_stream.items())
    ]
    return {
        "rank": rank,
        "step": step,
        "families": families,
        "overlap": overlap,
        "streams": streams,
        "bubbles": bubbles(timeline, rank),
        "masking": masking(timeline, rank, step),
    }


def _family(timeline: StepTimeline, name: str, gid: int, calls: list[Kernel]) -> dict[str, Any]:
    durations = [kernel.dur_ns for kernel in calls]
    layers = timeline.model.dit.layers
    return {
        "family": name,
        "communicator": gid,
        "calls": len(calls),
        "remainder": len(calls) % layers,
        "sum_ns": sum(durations),
        "median_ns": median(durations),
        "max_ns": max(durations),
        "union_ns": measure(union(spans(calls))),
    }


def bubbles(timeline: StepTimeline, rank: int) -> dict[str, Any]:
    """Return the gaps of the stream with the most AI-core work, and the three tests on them.

    A gap is *released* when a collective ran in it and its end lies within 100 µs of a collective's end; the whole gap
    counts. Empty is gap time in which no kernel of any core runs (``empty_with_copies`` counts copies as something
    running, for profiles that list them).
    """
    kernels = timeline.kernels(rank)
    on_stream = [k for k in kernels if k.op.core in COMPUTE_CORES and k.op.stream == COMPUTE]
    busy = union(spans(on_stream))
    gaps = [(a[1], b[0]) for a, b in pairwise(busy)]
    collectives = [k for k in kernels if k.op.family]
    running = union(spans(collectives))
    anything = spans(k for k in kernels if k.op.stream != COPY)
    ends = [k.end_ns for k in collectives]
    waited = [gap for gap in gaps if any(start < gap[1] and end > gap[0] for start, end in running)]
    released = [gap for gap in waited if any(abs(gap[1] - end) <= RELEASE_NS for end in ends)]
    attention = union(spans(k for k in kernels if k.op.attention))
    groups: dict[tuple[str, int, str], list[Kernel]] = {}
    for k in collectives:
        groups.setdefault((k.op.family, timeline.group(rank, k.op.stream).gid, k.op.part), []).append(k)
    lags = [k.start_ns - k.ready_ns for k in kernels if k.op.attention and k.ready_ns >= 0]
    return {
        "span_ns": busy[-1][1] - busy[0][0],
        "busy_ns": measure(busy),
        "gap_ns": measure(gaps),
        "gap_with_collective_ns": measure(common(gaps, running)),
        "gap_empty_ns": measure(gaps) - measure(common(gaps, anything)),
        "gap_empty_with_copies_ns": measure(gaps) - measure(common(gaps, spans(kernels))),
        "gap_released_ns": measure(released),
        "gap_released_with_collective_ns": measure(common(released, running)),
        "groups": [
            {
                "family": family,
                "communicator": gid,
                "part": part,
                "calls": len(found),
                "total_ns": sum(k.dur_ns for k in found),
                "exposed_ns": measure(common(gaps, spans(found))),
                "overlap_attention_ns": measure(common(attention, spans(found))),
            }
            for (family, gid, part), found in sorted(groups.items())
        ],
        "producer_lags_ns": lags,
        "producer_lag_median_ns": median(lags) if lags else None,
        "within_100us_share": sum(lag <= RELEASE_NS for lag in lags) / len(lags) if lags else None,
    }


def masking(timeline: StepTimeline, rank: int, step: dict[str, int], drain_ratio: float = 0.25) -> dict[str, Any]:
    """Return C, F and the bound for every (family, communicator) of a rank.

    Per layer: C is the family's time, F the attention kernels' time. Attention can hide no more than F, and nothing of
    the first chunk's forward calls or of the last chunk's reverse ones; ``estimate`` is the rule that lets the last
    attention hide nothing: 1 − 1/n with f ≥ c, else 1 − (c + (n−1)(c−f) + drain) ÷ C, drain = ratio × c. Measured is
    overlapped ÷ communication of the step.
    """
    layers = timeline.model.dit.layers
    kernels = timeline.kernels(rank)
    n = mask_chunks(timeline.model.dit, timeline.split)
    attention = [k for k in kernels if k.op.attention]
    hide = sum(k.dur_ns for k in attention) / layers
    by_family: dict[tuple[str, int], list[Kernel]] = {}
    for k in kernels:
        if k.op.family:
            by_family.setdefault((k.op.family, timeline.group(rank, k.op.stream).gid), []).append(k)
    bounds = []
    for (family, gid), calls in sorted(by_family.items()):
        big_c = sum(k.dur_ns for k in calls) / layers
        c, f = big_c / n, hide / n
        estimate = 1 - 1 / n if f >= c else 1 - (c + (n - 1) * (c - f) + drain_ratio * c) / big_c
        bounds.append(
            {
                "family": family,
                "communicator": gid,
                "C_ns": big_c,
                "F_ns": hide,
                "bound": max(0.0, min(hide, big_c - alone_ns(calls, len(attention) // n, n) / layers)) / big_c,
                "estimate": max(estimate, 0.0),
                "under_attention": measure(common(spans(calls), union(spans(attention)))) / big_c / layers,
            }
        )
    measured = step["overlapped_ns"] / step["communication_ns"] if step["communication_ns"] else None
    return {"chunks": n, "measured": measured, "bounds": bounds}


def alone_ns(calls: list[Kernel], layers: int, chunks: int) -> int:
    """Return the least time of one chunk's calls at the two ends of every layer, however many of them are forward ones;
    0 where a layer's calls are no equal chunks."""
    if not layers or len(calls) % (layers * chunks):
        return 0
    per_layer = len(calls) // layers
    each = per_layer // chunks
    found = []
    for forward in range(each + 1):
        ends = [*range(forward), *range(per_layer - each + forward, per_layer)]
        found.append(sum(calls[layer * per_layer + call].dur_ns for layer in range(layers) for call in ends))
    return min(found)


def timeline_truth(timeline: StepTimeline) -> dict[str, Any]:
    """Return the truth of a timeline as a JSON-able value."""
    return {
        "form": timeline.split.name,
        "cards": list(timeline.cards),
        "layers": timeline.model.dit.layers,
        "step_ns": timeline.step_ns,
        "ranks": [rank_truth(timeline, rank) for rank in timeline.ranks],
    }
