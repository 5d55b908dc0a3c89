"""Torch (Kineto) Chrome traces: one file per rank, plain or gzip, of a GPU run or of a CPU run with gloo.

On a GPU the kernels are the events of the device; on a CPU run there is no device, so the compute is what the busiest
thread's operators do, and the communication is the ``gloo:`` operations.
"""

from __future__ import annotations

import json
import re
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
from anchormatrix.captures.host_operators import operator_table
from anchormatrix.captures.kineto_events import (
    UNLAUNCHED,
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
# Calls of the runtime that start nothing on the device: a trace that holds only these has no launches.
_NO_LAUNCH = re.compile(r"synchronize|query|event|malloc|free|getdevice|attribute", re.IGNORECASE)
_OPERATOR = ("cpu_op", "operator")


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
        table, read = operator_table(operators, complete, windows, bad)
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
    """Return when each device event was launched on the host, ``UNLAUNCHED`` where the trace has launches and not its
    own (it was launched before the trace began); its own start in a trace without launches."""
    calls = [event for category in _LAUNCH for event in groups.get(category, ()) if _correlation(event) is not None]
    if all(_NO_LAUNCH.search(str(event.get("name", ""))) for event in calls):
        return start
    at, _, good = times_of([{**event, "dur": 0} for event in calls])
    times = np.where(good, at, UNLAUNCHED).tolist()
    when = {_correlation(event): time for event, time in zip(calls, times, strict=True)}
    return np.asarray([when.get(_correlation(event), UNLAUNCHED) for event in events], np.int64)


def _correlation(event: Event) -> Any:
    args = event.get("args")
    value = args.get("correlation") if isinstance(args, dict) else None
    return value if isinstance(value, int | str) else None
