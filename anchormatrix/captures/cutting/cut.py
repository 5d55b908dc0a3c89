"""The denoise steps of a capture whose only annotation is the whole request, or that has none.

vllm-omni 0.30 calls ``profiler.step()`` once a request, so that text encoder, all steps and VAE decode are one step of
the profiler (``diffusion/worker/diffusion_worker.py:697-741``); only under ``--step-execution`` is each annotated. What
is cut here is from then on like what is annotated; what lies before and after belongs to no step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from anchormatrix.captures.cutting.calls import StepCalls, launched_or_start, of_steps
from anchormatrix.captures.cutting.repeats import Repeats, frequent, repeats
from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.names import COMPUTE
from anchormatrix.captures.table import OUTSIDE, Capture, is_collective, is_core
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding

Int64s = npt.NDArray[np.int64]

_CURE = (
    "capture a request of four steps or more without a step cache, have modules in the trace (with_stack), or let the "
    "engine annotate each step (vllm-omni: --step-execution)"
)
_OFF_PCT = 10.0  # the device and the log do not begin and end together
_DOUBT = 0.02  # of a step, how far its boundaries may be uncertain
_UNEVEN = 0.02  # of its kernels, how many more or less a step may have
_NUMBERS = re.compile(r"\d+")
_SHOWN = 4


@dataclass(frozen=True, eq=False)
class _Cut:
    """The steps of one rank: boundaries in time (one more than steps), the step of each kernel, how long all took on
    the device, and what to say."""

    boundaries: Int64s
    steps: npt.NDArray[np.int32]
    took_ns: int
    by: str
    notes: tuple[str, ...]
    uneven: str


def cut(capture: Capture, request: Request) -> Capture:
    """Return the capture with its steps, numbered from 1, where it is of whole requests; else the capture itself.

    Raises :class:`InputError` when the steps cannot be told: no step is ever guessed.
    """
    if not _is_whole(capture, request):
        return capture
    if not len(capture.kernels):
        raise InputError(
            "is of a whole request and holds no kernels, only its table of steps",
            where="capture",
            expected="kernel_details.csv of each rank",
            todo=_CURE,
        )
    if request.iterations < 2:
        raise InputError(
            "covers the text encoder, its only step and the decoder, and one step does not repeat",
            where="capture",
            expected="a step, or a request of several steps",
            todo=_CURE,
        )
    found = {rank: _of_rank(capture, rank, kernels, request) for rank, kernels in capture.per_rank()}
    windows = [
        (rank, number, begin, end)
        for rank, one in found.items()
        for number, (begin, end) in enumerate(
            zip(one.boundaries[:-1].tolist(), one.boundaries[1:].tolist(), strict=True), 1
        )
        if (one.steps == number).any()
    ]
    steps = np.concatenate([found[rank].steps for rank in capture.ranks])
    unused = ("the profiler's step table is of the whole request and is not used",) if capture.steps is not None else ()
    by = ", ".join(dict.fromkeys(one.by for one in found.values()))
    return replace(
        capture,
        kernels=capture.kernels.assign(step=steps),
        steps=None,
        windows=pd.DataFrame(windows, columns=["rank", "step", "start_ns", "end_ns"]),
        cut=f"cut from the request by {by}",
        notes=(*capture.notes, *unused, *dict.fromkeys(note for one in found.values() for note in one.notes)),
        findings=(*capture.findings, *_findings(found, request)),
    )


def _is_whole(capture: Capture, request: Request) -> bool:
    """Whether the capture's only step is the request."""
    if capture.steps is not None and not len(capture.kernels):
        ids, spans = capture.steps["step"].nunique(), capture.steps["stage_ns"]
    else:
        ids, spans = len(capture.step_ids), capture.windows["end_ns"] - capture.windows["start_ns"]
    if ids != 1:
        return False
    if spans.empty:
        spans = pd.Series([_extent(kernels) for _, kernels in capture.per_rank()])
    span_s = float(spans.max()) / 1e9
    a_step = request.holds_a_step(span_s)
    if a_step is None:
        raise InputError(
            f"its only step takes {span_s:.3g} s, where {request.iterations} steps took {request.diffuse_s:.3g} s",
            where="capture",
            expected="one step, or all of them",
            todo=_CURE,
        )
    return not a_step


def _extent(kernels: pd.DataFrame) -> int:
    start = kernels["start_ns"].to_numpy()
    return int((start + kernels["dur_ns"].to_numpy()).max() - start.min())


def _of_rank(capture: Capture, rank: int, kernels: pd.DataFrame, request: Request) -> _Cut:
    calls = of_steps(capture.calls[capture.calls["rank"] == rank], kernels, request)
    if calls is not None:
        return _by_calls(kernels, calls)
    main = _main_stream(kernels)
    rows = kernels.iloc[main]
    names = rows["name"].cat
    raw = names.codes.to_numpy().astype(np.int64)
    # A name may carry a running number; those that differ by numbers alone are then the same.
    plain = pd.factorize(pd.Index([_NUMBERS.sub("#", str(name)) for name in names.categories]))[0][raw]
    for codes in (raw, plain):
        for each in sorted({1, request.branches}):
            found = [one for one in repeats(codes, request.iterations * each) if _fits(one, codes, rows, request)]
            if each > 1:  # what is between the last branch of a step and the first of the next could be of either
                found = [one for one in found if one.usual.all()]
            best = _best(found, rows, request, rank)
            if best is not None:
                return _by_repeats(kernels, main, best, each)
    seen = frequent(raw)
    wanted = {request.iterations, request.iterations * request.branches}
    said = f"{seen} repeats were found where {request.expected}"
    if seen in wanted:
        said = f"much repeats {seen} times, as was expected, and not alike enough to tell where a step begins and ends"
    raise InputError(
        f"the steps cannot be told from the kernels: {said}",
        where=f"capture, rank {rank}",
        todo=_CURE,
    )


def _main_stream(kernels: pd.DataFrame) -> Int64s:
    """Return the rows of the stream that computes most, which runs in the order of launches."""
    computing = is_core(kernels, COMPUTE) & ~is_collective(kernels)
    if not computing.any():
        return np.empty(0, np.int64)
    streams = kernels["stream"].cat.codes.to_numpy()
    busy = np.bincount(streams[computing], weights=kernels["dur_ns"].to_numpy()[computing])
    return np.flatnonzero(computing & (streams == int(busy.argmax())))


def _times(one: Repeats, rows: pd.DataFrame) -> Int64s:
    """Return when each repeat begins, and when the last one ends."""
    start = rows["start_ns"].to_numpy()
    end = int(start[one.end - 1]) + int(rows["dur_ns"].to_numpy()[one.end - 1])
    return np.append(start[one.starts], end)


def _fits(one: Repeats, codes: Int64s, rows: pd.DataFrame, request: Request) -> bool:
    """Whether repeats may be the steps: they take as long, and layers repeat inside them."""
    times = _times(one, rows)
    if not request.may_take(float(times[-1] - times[0]) / 1e9, _extent(rows) / 1e9):
        return False
    usual = int(np.flatnonzero(one.usual)[0])
    end = np.append(one.starts, one.end)[usual + 1]
    return int(np.bincount(codes[one.starts[usual] : end]).max()) >= (request.layers or 1)


def _best(found: list[Repeats], rows: pd.DataFrame, request: Request, rank: int) -> Repeats | None:
    """Return the only repeats, or those that take as long as the server says while no others do."""
    if len(found) < 2:
        return found[0] if found else None
    off = [request.off_pct(float(np.ptp(_times(one, rows))) / 1e9) for one in found]
    near = [one for one, pct in zip(found, off, strict=True) if pct <= _OFF_PCT]
    if len(near) == 1:
        return near[0]
    spans = ", ".join(f"{float(np.ptp(_times(one, rows))) / 1e6:.3f} ms" for one in found)
    raise InputError(
        f"{len(found)} parts of the request repeat as often as its steps ({spans})",
        where=f"capture, rank {rank}",
        todo=_CURE,
    )


def _by_repeats(kernels: pd.DataFrame, main: Int64s, one: Repeats, each: int) -> _Cut:
    rows = kernels.iloc[main]
    start = rows["start_ns"].to_numpy()
    times = _times(one, rows)
    boundaries, positions = np.append(times[:-1:each], times[-1]), np.append(one.starts[::each], one.end)
    usual_ns = float(np.median(np.diff(boundaries)))
    within = [np.clip(positions[:-1] + by, 0, len(start) - 1) for by in one.doubt]
    doubt_ns = int((start[within[1]] - start[within[0]]).max())
    if doubt_ns > _DOUBT * usual_ns:
        raise InputError(
            f"the steps repeat, and where they begin is only known to {doubt_ns / 1e6:.3f} ms of {usual_ns / 1e6:.3f}",
            where="capture",
            todo=_CURE,
        )
    # Other streams by their launch, where it is known: they run ahead of, or behind, the compute stream.
    at, limits = kernels["start_ns"].to_numpy(), boundaries
    if "launched_ns" in kernels:
        launched = kernels["launched_ns"].to_numpy()
        first_of_each = np.append(launched[main][positions[:-1]], launched[main][one.end - 1] + 1)
        if (np.diff(first_of_each) > 0).all():  # not one graph for all steps
            at, limits = launched, first_of_each
    owned = np.searchsorted(limits[:-1], at, side="right")
    owned[at >= limits[-1]] = 0
    index = np.searchsorted(positions, np.arange(len(main)), side="right")
    owned[main] = np.where(index > len(positions) - 1, 0, index)
    count = len(positions) - 1
    notes = [f"{count} steps were cut from the request; what lies before and after them belongs to no step"]
    if doubt_ns:
        notes.append(f"where the cut steps begin is certain to {doubt_ns / 1e6:.3f} ms")
    if one.ragged:
        notes.append("the first step begins or the last one ends otherwise than the others: both are left out")
        owned[(owned == 1) | (owned == count)] = 0
    numbers = np.diff(positions)
    usual = int(np.median(numbers))
    uneven = (np.flatnonzero(np.abs(numbers - usual) > _UNEVEN * usual) + 1).tolist()
    listed = ", ".join(f"step {number} {numbers[number - 1]}" for number in uneven[:_SHOWN])
    more = f" and {len(uneven) - _SHOWN} more" if len(uneven) > _SHOWN else ""
    return _Cut(
        boundaries,
        np.where(owned == 0, OUTSIDE, owned).astype(np.int32),
        int(np.ptp(boundaries)),
        f"the repetition of its kernels ({count} times {usual} of the compute stream)",
        tuple(notes),
        f"unlike the usual step of {usual} kernels are {listed}{more}" if uneven else "",
    )


def _by_calls(kernels: pd.DataFrame, calls: StepCalls) -> _Cut:
    at = kernels[launched_or_start(kernels)].to_numpy()
    owned = np.searchsorted(calls.begin_ns, at, side="right")
    owned[at >= calls.end_ns] = 0
    count, steps = len(calls.begin_ns), np.where(owned == 0, OUTSIDE, owned).astype(np.int32)
    text = f"{count} steps were cut from the request at the calls of {calls.name}: the last one ends with its call"
    boundaries, took_ns = np.append(calls.begin_ns, calls.end_ns), _extent(kernels[owned > 0])
    return _Cut(boundaries, steps, took_ns, f"the calls of {calls.name}", (text,), "")


def _findings(found: dict[int, _Cut], request: Request) -> list[Finding]:
    findings = [Finding("uneven_steps", one.uneven, (rank,)) for rank, one in found.items() if one.uneven]
    for rank, one in found.items():
        took_s = one.took_ns / 1e9
        if request.diffuse_s and request.off_pct(took_s) > _OFF_PCT:
            text = (
                f"the steps that were cut take {took_s:.4g} s together, and the server says {request.diffuse_s:.4g} s"
            )
            findings.append(Finding("cut_seconds", text, (rank,)))
    return findings
