"""The kernels of one Ascend rank from its ``trace_view.json``, for captures whose ``kernel_details.csv`` is missing.

The device's tasks are the events of the process "Ascend Hardware", each with its "Task Type"; the operations of HCCL
are those of the process "Communication" (older: "HCCL"), above the tasks that carry them out (CANN, msprof: timeline).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from anchormatrix.captures.ascend import collectives_of
from anchormatrix.captures.csvfile import UnusableRows, open_binary
from anchormatrix.captures.kineto_events import (
    Event,
    Window,
    annotated_steps,
    kernel_table,
    step_of,
    times_of,
    usable_events,
)
from anchormatrix.captures.names import COMMUNICATION, COMPUTE, ascend_core
from anchormatrix.captures.table import NO_STREAM
from anchormatrix.errors import InputError

_HARDWARE = "ascend hardware"
_COMMUNICATION = ("communication", "hccl")
_FLOW = ("s", "f")


def is_trace_view(path: Path) -> bool:
    """Whether a trace is of Ascend hardware: by its name, or by the process that its head names."""
    if path.name.startswith("trace_view"):
        return True
    try:
        with open_binary(path) as stream:
            return b'"Ascend Hardware"' in stream.read(1 << 20)
    except (OSError, EOFError, zlib.error):
        return False


def read_trace_view(path: Path) -> tuple[pa.Table, tuple[Window, ...], UnusableRows, int]:
    """Return kernels (all kernel columns but ``rank``), annotated steps, unusable events, and how many were read.

    A kernel belongs to the step that launched it, where the file links them, else to the step it starts in. Raises
    :class:`InputError` naming the file when it is cut off or holds no list of events; a file without kernels gives an
    empty table.
    """
    events = _events(path)
    processes = _processes(events)
    complete = [event for event in events if event.get("ph") == "X"]
    tasks = [event for event in complete if processes.get(event.get("pid")) == _HARDWARE and _task(event)]
    calls = [
        event
        for event in complete
        if str(processes.get(event.get("pid"), "")).startswith(_COMMUNICATION) and _is_call(event)
    ]
    windows = annotated_steps({**event, "cat": "user_annotation"} for event in complete if _is_step(event))
    bad = UnusableRows()
    kernels, start, dur = usable_events([*tasks, *calls], bad)
    names = pa.array([str(event.get("name", "")).strip() for event in kernels], pa.string())
    families, communicators = collectives_of(names)
    family, communicator = families.to_pylist(), communicators.to_pylist()
    table = kernel_table(
        step_of(_launches(kernels, start, events), windows),
        [_stream(event, group) for event, group in zip(kernels, communicator, strict=True)],
        [_core(event, one) for event, one in zip(kernels, family, strict=True)],
        names.to_pylist(),
        family,
        communicator,
        start,
        dur,
    )
    return table, windows, bad, len(tasks) + len(calls)


def _events(path: Path) -> list[Event]:
    try:
        with open_binary(path) as stream:
            document = json.loads(stream.read().decode("utf-8", errors="replace"), parse_float=str)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        todo = "capture again: the file may have been cut off"
        raise InputError(f"is not a readable trace ({error})", where=str(path), todo=todo) from None
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list):
        raise InputError("has no list of events", where=str(path), expected="a trace_view.json of the Ascend profiler")
    return [event for event in listed if isinstance(event, dict) and isinstance(event.get("pid"), int | str | None)]


def _processes(events: list[Event]) -> Mapping[Any, str]:
    named = (event for event in events if event.get("ph") == "M" and event.get("name") == "process_name")
    return {event.get("pid"): str(_arguments(event).get("name", "")).strip().lower() for event in named}


def _arguments(event: Event) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _task(event: Event) -> str:
    return str(_arguments(event).get("Task Type", ""))


def _stream(event: Event, communicator: str) -> str:
    if not _task(event):
        return f"{NO_STREAM} {communicator}".strip()
    return str(_arguments(event).get("Physic Stream Id", event.get("tid", "")))


def _core(event: Event, family: str) -> str:
    core = ascend_core(_task(event)) if _task(event) else COMMUNICATION
    return COMMUNICATION if family and core == COMPUTE else core


def _is_call(event: Event) -> bool:
    return str(event.get("name", "")).lower().startswith(("hcom", "hccl"))


def _is_step(event: Event) -> bool:
    return str(event.get("name", "")).startswith("ProfilerStep")


def _launches(kernels: list[Event], start: Any, events: list[Event]) -> Any:
    """Return when each kernel was launched: where the arrow that ends at it begins; its own start without one."""
    arrows: dict[str, dict[Any, Event]] = {phase: {} for phase in _FLOW}
    for event in events:
        phase = event.get("ph")
        if phase in _FLOW and isinstance(event.get("id"), int | str):
            arrows[phase][(str(event.get("cat", "")), event["id"])] = event
    ends = {_place(end): key for key, end in arrows["f"].items() if key in arrows["s"]}
    linked = [
        (number, arrows["s"][ends[_place(event)]]) for number, event in enumerate(kernels) if _place(event) in ends
    ]
    if not linked:
        return start
    begun, _, good = times_of([{"dur": 0, **event} for _, event in linked])
    launched = start.copy()
    for (number, _), time, usable in zip(linked, begun.tolist(), good.tolist(), strict=True):
        launched[number] = time if usable else launched[number]
    return launched


def _place(event: Event) -> tuple[str, str, str]:
    return str(event.get("pid")), str(event.get("tid")), str(event.get("ts")).strip()
