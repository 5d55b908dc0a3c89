"""Torch (Kineto) Chrome traces: one file per rank, plain or gzip, of a GPU run or of a CPU run with gloo.

On a GPU the kernels are the events of the device; on a CPU run there is no device, so the compute is what the busiest
thread's operators do, and the communication is the ``gloo:`` operations.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anchormatrix.captures.csvfile import UnusableRows, open_binary
from anchormatrix.captures.decimals import Int64s
from anchormatrix.captures.kineto_events import (
    Event,
    Window,
    annotated_steps,
    kernel_table,
    step_of,
    times_of,
    usable_events,
)
from anchormatrix.captures.names import COMMUNICATION, COMPUTE, COPY, asks_operator, torch_family
from anchormatrix.captures.naming.launching import Launch, launched_by
from anchormatrix.captures.table import MOST_RANKS
from anchormatrix.errors import InputError

_DEVICE = {"kernel": COMPUTE, "gpu_memcpy": COPY, "gpu_memset": COPY, "memcpy": COPY, "memset": COPY}
_LAUNCH = ("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime")
_OPERATOR = ("cpu_op", "operator")
_NOT_COMPUTE = ("c10d::", "_c10d_functional::", "c10d_functional::", "gloo:", "record_param_comms", "ProfilerStep")
_WRAPPER_SHARE = 0.5


class EmptyTraceError(InputError):
    """A trace that is whole and holds neither kernels nor operators."""


@dataclass(frozen=True)
class TraceFile:
    """One rank's trace: kernels as an Arrow table (all kernel columns but ``rank``), annotated steps, bad events."""

    table: pa.Table
    windows: tuple[Window, ...]
    rank: int | None
    rows_read: int
    bad: UnusableRows


def is_trace(path: Path) -> bool:
    """Whether a JSON file looks like a Chrome trace: ``traceEvents`` near its head, or a list of events.

    A damaged gzip file counts as one, so that it is refused by name instead of passed over.
    """
    try:
        with open_binary(path) as stream:
            head = stream.read(1 << 20)
    except (OSError, EOFError, zlib.error):
        return path.suffix == ".gz"
    return b'"traceEvents"' in head or (head.lstrip()[:1] == b"[" and b'"ph"' in head)


def read_trace(path: Path) -> TraceFile:
    """Read one trace.

    Raises :class:`InputError` naming the file when it is cut off, is no trace, or holds neither kernels nor operators.
    """
    document = _load(path)
    listed = document if isinstance(document, list) else document.get("traceEvents")
    if not isinstance(listed, list):
        raise InputError("has no list of events", where=str(path), expected="a Chrome trace with traceEvents")
    complete = [event for event in listed if isinstance(event, dict) and event.get("ph") == "X"]
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in complete:
        groups[str(event.get("cat", "")).lower()].append(event)
    windows = annotated_steps(complete)
    bad = UnusableRows()
    device = [event for category in _DEVICE for event in groups.get(category, ())]
    if device:
        table, read = _device_table(device, groups, windows, bad)
    else:
        operators = [event for category in _OPERATOR for event in groups.get(category, ())]
        table, read = _operator_table(operators, complete, windows, bad)
    if not read:
        raise EmptyTraceError(
            "holds no kernel and no operator", where=str(path), todo="was anything running when captured?"
        )
    info = document.get("distributedInfo") if isinstance(document, dict) else None
    rank = info.get("rank") if isinstance(info, dict) else None
    stated = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank <= MOST_RANKS else None
    return TraceFile(table, windows, stated, read, bad)


def _load(path: Path) -> Any:
    try:
        with open_binary(path) as stream:
            # Numbers with a point stay text, so no time stamp passes through a float.
            return json.load(stream, parse_float=str)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise InputError(
            f"is not a readable trace ({error})",
            where=str(path),
            todo="the capture may have been cut off: capture again",
        ) from None


def _device_table(
    events: list[Event], groups: dict[str, list[Event]], windows: Sequence[Window], bad: UnusableRows
) -> tuple[pa.Table, int]:
    read = len(events)
    events, start, dur = usable_events(events, bad)
    launched = _launch_times(events, start, groups)
    arguments = [event["args"] if isinstance(event.get("args"), dict) else {} for event in events]
    names = [str(event.get("name", "")) for event in events]
    asking = [index for index, name in enumerate(names) if asks_operator(name)]
    launches = dict(zip(asking, launched_by([events[index] for index in asking], groups, _LAUNCH), strict=True))
    said = [launches.get(index, Launch()) for index in range(len(events))]
    families = [
        torch_family(name, str(args.get("Collective name") or by.stated), by.operator)
        for name, args, by in zip(names, arguments, said, strict=True)
    ]
    cores = [
        COMMUNICATION if family else _DEVICE[str(event["cat"]).lower()]
        for event, family in zip(events, families, strict=True)
    ]
    streams = [str(args.get("stream", event.get("tid", ""))) for event, args in zip(events, arguments, strict=True)]
    groups_of = [
        str(args.get("Process Group Name", by.group)) if family else ""
        for args, family, by in zip(arguments, families, said, strict=True)
    ]
    # A kernel belongs to the step that launched it, whenever it runs: two steps overlap on an asynchronous device.
    return kernel_table(step_of(launched, windows), streams, cores, names, families, groups_of, start, dur), read


def _launch_times(events: list[Event], start: Int64s, groups: dict[str, list[Event]]) -> Int64s:
    """Return when each device event was launched on the host; its own start where the launch is not in the trace."""
    launches = [event for category in _LAUNCH for event in groups.get(category, ()) if _correlation(event) is not None]
    if not launches:
        return start
    at, _, _ = times_of(launches)
    when = {_correlation(event): time for event, time in zip(launches, at.tolist(), strict=True)}
    return np.asarray(
        [when.get(_correlation(event), own) for event, own in zip(events, start.tolist(), strict=True)], np.int64
    )


def _correlation(event: Event) -> Any:
    args = event.get("args")
    value = args.get("correlation") if isinstance(args, dict) else None
    return value if isinstance(value, int | str) else None


def _operator_table(
    operators: list[Event], complete: list[Event], windows: Sequence[Window], bad: UnusableRows
) -> tuple[pa.Table, int]:
    transfers = [event for event in complete if str(event.get("name", "")).startswith("gloo:")]
    operators = [event for event in operators if not str(event.get("name", "")).startswith("gloo:")]
    read = len(operators) + len(transfers)
    operators, start, dur = usable_events(operators, bad)
    thread = _busiest_thread(operators, dur)
    mine = np.asarray([_thread(event) == thread for event in operators], dtype=bool)
    main = [event for event, own in zip(operators, mine, strict=True) if own]
    kept = _kernels_of(start[mine], dur[mine], [str(event.get("name", "")) for event in main])
    compute = [main[index] for index in kept]
    transfers, transfer_start, transfer_dur = usable_events(transfers, bad)
    families = [torch_family(str(event["name"])) for event in transfers]
    communicators = _gloo_groups(transfer_start, operators, start, dur)
    all_start = np.concatenate([start[mine][kept], transfer_start])
    table = kernel_table(
        step_of(all_start, windows),
        [str(event.get("tid", "")) for event in compute] + [f"gloo {event.get('tid', '')}" for event in transfers],
        [COMPUTE] * len(compute) + [COMMUNICATION] * len(transfers),
        [str(event.get("name", "")) for event in compute + transfers],
        [""] * len(compute) + families,
        [""] * len(compute) + communicators,
        all_start,
        np.concatenate([dur[mine][kept], transfer_dur]),
    )
    return table, read


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid", "")), str(event.get("tid", ""))


def _busiest_thread(operators: list[Event], dur: Int64s) -> tuple[str, str]:
    busy: dict[tuple[str, str], int] = defaultdict(int)
    for event, length in zip(operators, dur.tolist(), strict=True):
        busy[_thread(event)] += length
    return max(busy, key=lambda thread: busy[thread], default=("", ""))


def _kernels_of(start: Int64s, dur: Int64s, names: list[str]) -> list[int]:
    """Return the operators of one thread that do the work, none inside another.

    An operator whose children fill half of it or more only hands on to them; else it is the kernel and its children
    (allocations, views) belong to it. Operators of the communication layer, and what they call, are no compute.
    """
    order = np.lexsort((-dur, start)).tolist()
    end = (start + dur).tolist()
    children: dict[int, list[int]] = defaultdict(list)
    roots: list[int] = []
    open_operators: list[int] = []
    for index in order:
        while open_operators and end[open_operators[-1]] <= int(start[index]):
            open_operators.pop()
        (children[open_operators[-1]] if open_operators else roots).append(index)
        open_operators.append(index)
    kept: list[int] = []
    waiting = roots[::-1]
    while waiting:
        index = waiting.pop()
        if names[index].startswith(_NOT_COMPUTE):
            continue
        inner = children.get(index, [])
        if inner and int(dur[inner].sum()) >= _WRAPPER_SHARE * int(dur[index]):
            waiting += inner[::-1]
        else:
            kept.append(index)
    return kept


def _gloo_groups(at: Int64s, operators: list[Event], start: Int64s, dur: Int64s) -> list[str]:
    """Return the process group of each gloo operation, that of the record it was started in, or ``""``."""
    records = [
        (int(begin), int(begin + length), str(event["args"]["Process Group Name"]))
        for event, begin, length in zip(operators, start, dur, strict=True)
        if event.get("name") == "record_param_comms"
        and isinstance(event.get("args"), dict)
        and "Process Group Name" in event["args"]
    ]
    records.sort()
    found = []
    begins = np.asarray([record[0] for record in records], np.int64)
    for time in at.tolist():
        index = int(np.searchsorted(begins, time, side="right")) - 1
        inside = index >= 0 and time <= records[index][1]
        found.append(records[index][2] if inside else "")
    return found
