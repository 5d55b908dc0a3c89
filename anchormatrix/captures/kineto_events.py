"""The events of a Chrome trace: their exact times, the steps that were annotated, and the kernel table made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anchormatrix.captures.csvfile import UnusableRows
from anchormatrix.captures.decimals import Int64s, nanoseconds
from anchormatrix.captures.table import OUTSIDE

UNLAUNCHED = int(np.iinfo(np.int64).min)  # before every step
STEP_NAME = re.compile(r"(?:ProfilerStep#|(?:.*[^a-z])?step[ _#:]?)(\d{1,9})", re.IGNORECASE)
INEXACT = "start or duration is not an exact number"
STEP_CATEGORIES = ("user_annotation", "cpu_op", "operator")

Event = dict[str, Any]


class Window(NamedTuple):
    """An annotated step: number, start and end in ns on the rank's clock."""

    step: int
    start_ns: int
    end_ns: int


def times_of(events: Sequence[Event]) -> tuple[Int64s, Int64s, np.ndarray]:
    """Return start and duration in ns of each event, and which have both."""

    def column(key: str) -> tuple[Int64s, np.ndarray]:
        values = (event.get(key) for event in events)
        return nanoseconds(pa.array(["" if isinstance(v, bool) else str(v) for v in values], pa.string()))

    (start, start_ok), (dur, dur_ok) = column("ts"), column("dur")
    return start, dur, start_ok & dur_ok & (dur >= 0)


def usable_events(events: Sequence[Event], bad: UnusableRows) -> tuple[list[Event], Int64s, Int64s]:
    """Return the events that have an exact start and duration, and both; count the others."""
    start, dur, good = times_of(events)
    if good.all():
        return list(events), start, dur
    first = int((~good).argmax())
    bad.add(INEXACT, first + 1, json.dumps(events[first]), int((~good).sum()))
    return [event for event, usable in zip(events, good, strict=True) if usable], start[good], dur[good]


def annotated_steps(events: Iterable[Event]) -> tuple[Window, ...]:
    """Return the annotated steps, earliest first. The device's copy of an annotation is not the step."""
    named = [
        (int(match[1]), event)
        for event in events
        if str(event.get("cat", "")).lower() in STEP_CATEGORIES
        and (match := STEP_NAME.fullmatch(str(event.get("name", ""))))
    ]
    profiler = [item for item in named if str(item[1]["name"]).startswith("ProfilerStep#")]
    named = profiler or named
    start, dur, good = times_of([event for _, event in named])
    found: dict[int, Window] = {}
    for (step, _), begin, length, usable in zip(named, start.tolist(), dur.tolist(), good.tolist(), strict=True):
        if usable and (step not in found or begin < found[step].start_ns):
            found[step] = Window(step, begin, begin + length)
    return tuple(sorted(found.values(), key=lambda window: window.start_ns))


def step_of(times: Int64s, windows: Sequence[Window]) -> np.ndarray:
    """Return the step whose annotation holds each time; 0 for all when nothing is annotated."""
    if not windows:
        return np.zeros(len(times), np.int32)
    starts = np.asarray([window.start_ns for window in windows])
    ends = np.asarray([window.end_ns for window in windows])
    index = np.searchsorted(starts, times, side="right") - 1
    inside = (index >= 0) & (times < ends[index])
    return np.where(inside, np.asarray([window.step for window in windows])[index], OUTSIDE).astype(np.int32)


def kernel_table(
    steps: np.ndarray,
    streams: list[str],
    cores: list[str],
    names: list[str],
    families: list[str],
    communicators: list[str],
    start: Int64s,
    dur: Int64s,
    launched: Int64s | None = None,
) -> pa.Table:
    """Return the columns as a kernel table without its ``rank``; times in ns, texts as dictionaries.

    ``launched``: when the host launched each, for a trace whose steps are still to be found.
    """
    texts = {"stream": streams, "core": cores, "name": names, "family": families, "communicator": communicators}
    encoded = {key: pa.array(values, pa.string()).dictionary_encode() for key, values in texts.items()}
    times = {"start_ns": pa.array(start), "dur_ns": pa.array(dur)}
    if launched is not None:
        times["launched_ns"] = pa.array(launched)
    return pa.table({"step": pa.array(steps, pa.int32()), **encoded, **times})
