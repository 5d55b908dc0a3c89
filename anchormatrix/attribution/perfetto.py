"""A capture as a Chrome trace for Perfetto: a process per rank, a track per stream, what is exposed and idle."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.attribution.intervals import union_of
from anchormatrix.captures.table import Capture, is_collective

EXPOSED, GAPS = "exposed communication", "nothing computes"


def trace_bytes(capture: Capture, *, compress: bool = True) -> tuple[bytes, int]:
    """Return the trace and its number of events. ``ts`` and ``dur`` are µs with exactly three decimals, counted from
    each rank's own first kernel, because clocks of two ranks are not comparable."""
    lines = [line for rank, kernels in capture.per_rank() for line in _rank_events(rank, kernels)]
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
    data = text.encode("utf-8")
    return (gzip.compress(data, 6, mtime=0) if compress else data), len(lines)


def _rank_events(rank: int, kernels: pd.DataFrame) -> Iterator[str]:
    origin = int(kernels["start_ns"].min())
    streams = sorted(set(kernels["stream"].astype(str)))
    tracks = {name: number for number, name in enumerate([EXPOSED, GAPS, *streams])}
    yield _meta("process_name", rank, 0, f"rank {rank}")
    for name, number in tracks.items():
        yield _meta("thread_name", rank, number, name if number < 2 else f"stream {name}")
        yield _meta("thread_sort_index", rank, number, number)
    columns = ("name", "stream", "start_ns", "dur_ns", "core", "step", "family", "communicator")
    for name, stream, start, dur, core, step, family, communicator in zip(
        *(kernels[column].tolist() for column in columns), strict=True
    ):
        args = {"step": step, "core": core}
        if family:
            args |= {"family": family, "communicator": communicator}
        yield _event(name, rank, tracks[stream], start - origin, dur, core, args)
    collective = is_collective(kernels)
    compute = union_of(kernels, compute_mask(kernels))
    exposed = union_of(kernels, collective) - compute
    last = int((kernels["start_ns"].to_numpy() + kernels["dur_ns"].to_numpy()).max())
    for name, part in ((EXPOSED, exposed), (GAPS, compute.gaps(origin, last))):
        for start, end in part:
            yield _event(name, rank, tracks[name], start - origin, end - start, name, {})


def _meta(kind: str, rank: int, track: int, value: Any) -> str:
    key = "sort_index" if kind == "thread_sort_index" else "name"
    return json.dumps({"ph": "M", "name": kind, "pid": rank, "tid": track, "args": {key: value}})


def _event(name: str, rank: int, track: int, start: int, dur: int, category: str, args: dict[str, Any]) -> str:
    head = json.dumps({"name": name, "cat": category, "args": args})[:-1]
    return f'{head}, "ph": "X", "pid": {rank}, "tid": {track}, "ts": {_us(start)}, "dur": {_us(dur)}}}'


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
