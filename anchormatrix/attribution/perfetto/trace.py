"""The trace of a capture as Perfetto opens it: a process per rank, a track per stream and per communicator.

Above them stand the steps as they lie on the device, what is exposed, and the time in which nothing computes. Events
are written in pieces, so a trace of any length needs the memory of one piece.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anchormatrix.attribution.device.spans import step_spans
from anchormatrix.attribution.device.times import times_of
from anchormatrix.attribution.intervals import Int64s, Intervals
from anchormatrix.attribution.perfetto.tracks import lanes_of, tracks_of
from anchormatrix.captures.table import MOST_RANKS, Capture

STEPS, EXPOSED, GAPS = "steps", "exposed communication", "nothing computes"
_PIECE = 1 << 15
_LEVEL = 3  # of gzip: higher ones take longer than all the rest and save a tenth
# Above every rank and never twice: trace_processor takes a thread whose number is its process's for the main thread,
# and older ones named threads by number alone (google/perfetto, process_tracker.cc, json_trace_parser_impl.cc).
_FIRST_THREAD = MOST_RANKS + 1
_THOUSANDTHS = pa.array([f".{number:03d}" for number in range(1000)])
_ABOUT = ("stream", "core", "family", "communicator")
_Texts = tuple[Sequence[bytes], np.ndarray]
"""Different texts, and which of them each slice has."""


def write_trace(capture: Capture, path: Path, *, compress: bool) -> int:
    """Write the trace to a file and return its number of slices: those of the tracks above and one per kernel.

    ``ts`` and ``dur`` are µs with exactly three decimals. Each rank counts from its own first kernel or step, because
    clocks of two ranks are not comparable. Raises ``OSError`` when the file cannot be written.
    """
    written, first_thread = 0, _FIRST_THREAD
    with path.open("wb") as raw:
        stream: Any = gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) if compress else raw
        stream.write(b'{"displayTimeUnit":"ns","traceEvents":[\n{"ph":"M","name":"trace","args":{}}')
        for rank, kernels in capture.per_rank():
            windows = capture.windows[capture.windows["rank"] == rank]
            above = f"{STEPS}, {capture.cut}" if capture.cut else STEPS
            slices, threads = _write_rank(stream, rank, kernels, windows, above, first_thread)
            written, first_thread = written + slices, first_thread + threads
        stream.write(b"\n]}\n")
        if compress:
            stream.close()
    return written


def _write_rank(
    stream: BinaryIO, rank: int, kernels: pd.DataFrame, windows: pd.DataFrame, steps_track: str, first_thread: int
) -> tuple[int, int]:
    """Write a rank, its threads numbered from ``first_thread``; return how many slices and threads it has."""
    kernels, steps = _from_zero(kernels, windows)
    above = _above(kernels, steps)
    track, names = tracks_of(kernels)
    start = np.concatenate([*(part.start for part in above.values()), kernels["start_ns"].to_numpy()])
    dur = np.concatenate([*(part.end - part.start for part in above.values()), kernels["dur_ns"].to_numpy()])
    counts = [len(part) for part in above.values()]
    track = np.concatenate([np.repeat(np.arange(len(above)), counts), track + len(above)])
    thread, threads = _threads(track, lanes_of(track, start, dur), [steps_track, *list(above)[1:], *names])
    for event in _names(rank, first_thread, threads):
        stream.write(b",\n" + msgspec.json.encode(event))
    labels = [*(f"step {step}" for step in steps["step"]), *above]
    label = np.concatenate([np.arange(counts[0]), np.repeat(np.arange(1, len(above)), counts[1:]) + counts[0]])
    first = len(label)
    ends = [f'"cat":"summary","ph":"X","pid":{rank},"tid":{first_thread + n},'.encode() for n in range(len(threads))]
    _write_slices(stream, (_openings(labels), label), (ends, thread[:first]), start[:first], dur[:first])
    _write_kernels(stream, rank, kernels, thread[first:] + first_thread, start[first:], dur[first:])
    return len(start), len(threads)


def _from_zero(kernels: pd.DataFrame, windows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The kernels and the steps on the device, in time since the first of either: an end may not fit 64 bits."""
    origin = int(min([kernels["start_ns"].min(), *windows["start_ns"]]))
    kernels = kernels.assign(start_ns=kernels["start_ns"] - origin)
    windows = windows.assign(start_ns=windows["start_ns"] - origin, end_ns=windows["end_ns"] - origin)
    return kernels, step_spans(kernels, windows).sort_values("start_ns", kind="stable")


def _above(kernels: pd.DataFrame, steps: pd.DataFrame) -> dict[str, Intervals]:
    """The tracks above the kernels, by name: steps first."""
    start, end = kernels["start_ns"].to_numpy(), (kernels["start_ns"] + kernels["dur_ns"]).to_numpy()
    times = times_of(kernels)
    return {
        STEPS: Intervals(steps["start_ns"].to_numpy(np.int64), steps["end_ns"].to_numpy(np.int64)),
        EXPOSED: times.exposed,
        GAPS: times.computing.gaps(int(start.min()), int(end.max())),
    }


def _threads(track: Int64s, lane: Int64s, names: Sequence[str]) -> tuple[Int64s, list[str]]:
    """A number for each lane in use, in the order of the tracks, and its name; empty tracks have none."""
    most = int(lane.max()) + 1
    key = track * most + lane
    counts = np.bincount(key)
    places = [divmod(key, most) for key in np.flatnonzero(counts).tolist()]
    labels = [names[track] + (f", lane {lane + 1}" if lane else "") for track, lane in places]
    return (np.cumsum(counts > 0) - 1)[key], labels


def _names(rank: int, first_thread: int, threads: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The names of a rank's process and of its threads, and the order to show them in."""
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    for number, name in enumerate(threads, first_thread):
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": number, "args": {"sort_index": number}}


def _openings(names: Iterable[str]) -> list[bytes]:
    return [b',\n{"name":' + msgspec.json.encode(name) + b"," for name in names]


def _write_kernels(
    stream: BinaryIO, rank: int, kernels: pd.DataFrame, thread: Int64s, start: Int64s, dur: Int64s
) -> None:
    """Write a slice per kernel. What many kernels share is made into text once."""
    about = [kernels[column].cat for column in _ABOUT]
    steps = kernels["step"].to_numpy()
    kind, firsts = _kinds([steps, thread, *(column.codes.to_numpy() for column in about)])
    ends = []
    for row in firsts.tolist():
        args: dict[str, Any] = {"step": int(steps[row])}
        args |= {key: label for key, column in zip(_ABOUT, about, strict=True) if (label := _label(column, row))}
        head = msgspec.json.encode({"cat": args["core"], "args": args})[1:-1]
        ends.append(head + f',"ph":"X","pid":{rank},"tid":{thread[row]},'.encode())
    names = kernels["name"].cat
    opening = _openings(map(str, names.categories)), names.codes.to_numpy()
    _write_slices(stream, opening, (ends, kind), start, dur)


def _label(column: Any, row: int) -> str:
    return str(column.categories[column.codes.iloc[row]])


def _kinds(columns: Sequence[np.ndarray]) -> tuple[Int64s, Int64s]:
    """Number the different rows of some columns; the number of each row, and the first row of each number."""
    kind = np.zeros(len(columns[0]), np.int64)
    for codes in columns:
        least = int(codes.min())
        kind, _ = pd.factorize(kind * (int(codes.max()) - least + 1) + codes - least)
    firsts = np.empty(int(kind.max()) + 1, np.int64)
    firsts[kind[::-1]] = np.arange(len(kind))[::-1]
    return kind, firsts


def _write_slices(stream: BinaryIO, opening: _Texts, end: _Texts, start: Int64s, dur: Int64s) -> None:
    """Write slices in pieces, each between an opening and an end."""
    openings, ends = (pa.array(texts, pa.binary()) for texts, _ in (opening, end))
    for first in range(0, len(start), _PIECE):
        part = slice(first, first + _PIECE)
        text = pc.binary_join_element_wise(
            *(openings.take(pa.array(opening[1][part])), ends.take(pa.array(end[1][part]))),
            *(b'"ts":', *_us(start[part]), b',"dur":', *_us(dur[part]), b"}", b""),
        )
        _, offsets, data = text.buffers()
        at = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
        stream.write(memoryview(data)[at[0] : at[-1]])


def _us(ns: Int64s) -> tuple[pa.Array, pa.Array]:
    """Nanoseconds as the text of microseconds: whole ones, and a point with three decimals."""
    whole, part = np.divmod(ns, 1000)
    return pa.array(whole).cast(pa.string()).cast(pa.binary()), _THOUSANDTHS.take(pa.array(part)).cast(pa.binary())
