"""Torch (Kineto) Chrome traces: one file per rank, plain or gzip, of a GPU run or of a CPU run with gloo.

On a GPU the kernels are the events of the device; on a CPU run there is no device, so the compute is what the
operators of its threads do, and the communication is the ``gloo:`` operations.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from anchormatrix.captures.csvfile import UnusableRows, open_binary
from anchormatrix.captures.cutting.calls import Call, named_calls
from anchormatrix.captures.decimals import Int64s, nanoseconds
from anchormatrix.captures.host_operators import operator_table
from anchormatrix.captures.kineto_events import (
    INEXACT,
    STEP_CATEGORIES,
    STEP_NAME,
    UNLAUNCHED,
    Window,
    annotated_steps,
    kernel_table,
    step_of,
)
from anchormatrix.captures.names import COMMUNICATION, COMPUTE, COPY, asks_operator, torch_family
from anchormatrix.captures.naming.launching import Launch, launched_by
from anchormatrix.captures.table import MOST_RANKS
from anchormatrix.captures.torch.activity import KERNEL, OPERATORS, Activity, EmptyTraceError
from anchormatrix.captures.torch.stream import DamagedError, Document, TraceEvent, TraceReader, written
from anchormatrix.errors import InputError

_EVENTS = b'"traceEvents"'
_UNSAID = str(UNSET)
_NOBODY = Launch()
# Calls of the runtime that start nothing on the device: a trace that holds only these has no launches.
_NO_LAUNCH = re.compile(r"synchronize|query|event|malloc|free|getdevice|attribute", re.IGNORECASE)


@dataclass(frozen=True)
class TraceFile:
    """One file: kernels as an Arrow table (all kernel columns but ``rank``), annotated steps, bad events; in a trace
    with less than two steps also the calls on the host by which steps may be told.

    ``devices``: the device of each table, of which ``table`` is the first; none in a run without a device. ``unknown``:
    events of categories that seem to be device activity and are not read. ``replaced``: places that were no UTF-8.
    """

    tables: tuple[pa.Table, ...]
    devices: tuple[str, ...]
    windows: tuple[Window, ...]
    calls: tuple[Call, ...]
    rank: int | None
    rows_read: int
    bad: UnusableRows
    unknown: Mapping[str, int]
    replaced: int
    remarks: tuple[str, ...]

    @property
    def table(self) -> pa.Table:
        """The kernels of the only device, or of the first."""
        return self.tables[0]


def is_trace(path: Path) -> bool:
    """Whether a JSON file looks like a Chrome trace: ``traceEvents`` anywhere, or a list of events.

    A damaged gzip file counts as one, so that it is refused by name instead of passed over, and so does an empty file.
    """
    try:
        with open_binary(path) as stream:
            head = stream.read(1 << 20)
            if not head.strip():
                return True
            if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
                return b'"ph"' in head
            while head:
                if _EVENTS in head:
                    return True
                # A key may lie across two blocks.
                following = stream.read(1 << 20)
                head = head[1 - len(_EVENTS) :] + following if following else b""
    except (OSError, EOFError, zlib.error):
        return path.suffix == ".gz"
    return False


def read_trace(path: Path) -> TraceFile:
    """Read one trace.

    Raises :class:`InputError` naming the file when it is cut off or is no trace, :class:`EmptyTraceError` when it is
    whole and holds neither kernels nor operators, or device activity or launches without kernels.
    """
    activity = Activity()
    document = _read(path, activity)
    try:
        return _trace_file(path, activity, document)
    except EmptyTraceError as error:
        error.rank = _stated(document)
        raise


def _read(path: Path, activity: Activity) -> Document:
    try:
        with open_binary(path) as stream:
            document = TraceReader(stream, activity.take, activity.restart).read()
    except (OSError, EOFError, zlib.error, DamagedError) as error:
        raise InputError(
            f"is not a readable trace ({error})",
            where=str(path),
            todo="the capture may have been cut off: capture again",
        ) from None
    if document.empty:
        raise EmptyTraceError("is empty", where=str(path), todo="the capture may have been cut off: capture again")
    if not document.listed:
        raise InputError("has no list of events", where=str(path), expected="a Chrome trace with traceEvents")
    return document


def _stated(document: Document) -> int | None:
    return document.rank if document.rank is not None and 0 <= document.rank <= MOST_RANKS else None


def _trace_file(path: Path, activity: Activity, document: Document) -> TraceFile:
    activity.refuse_without_kernels(str(path))
    bad = UnusableRows()
    devices: list[str] = []
    if activity.device:
        windows = annotated_steps(activity.host_events(STEP_CATEGORIES, STEP_NAME))
        table, read, devices = _device_table(activity, windows, bad)
    else:
        complete = activity.host_events()
        windows = annotated_steps(complete)
        operators = [event for name in OPERATORS for event in activity.host_events([name])]
        table, read = operator_table(operators, complete, windows, bad)
    if not read or (not table.num_rows and not bad.total):
        raise EmptyTraceError(
            "holds no kernel and no operator", where=str(path), todo="was anything running when captured?"
        )
    remarks = []
    if not document.closed:
        remarks.append(f"{path}: the list of events is not closed, all {activity.events} were read")
    if document.listed > 1:
        remarks.append(f"{path}: traceEvents occurs {document.listed} times, the last was read")
    shown = sorted(set(devices), key=lambda one: (len(one), one))
    tables = [table] if len(shown) < 2 else [table.filter(pa.array([one == own for own in devices])) for one in shown]
    return TraceFile(
        tuple(tables),
        tuple(shown),
        windows,
        named_calls(activity.host_events(("python_function", "user_annotation"))) if len(windows) < 2 else (),
        _stated(document),
        read,
        bad,
        activity.unknown if activity.device else {},
        document.replaced,
        tuple(remarks),
    )


def _devices_of(device: list[tuple[str, TraceEvent]]) -> list[str]:
    """Return the device of each event: device number and process, as far as they tell apart; that of the most kernels
    for copies on a device without kernels."""
    said = [(str(event.arguments.device), str(event.pid)) for _, event in device]
    numbers: dict[str, str] = {pid: number for number, pid in said if number != _UNSAID}
    said = [(number if number != _UNSAID else numbers.get(pid, pid), pid) for number, pid in said]
    kernels = Counter(one for (category, _), one in zip(device, said, strict=True) if category == KERNEL)
    most = max(kernels, key=lambda one: kernels[one])
    twice = len({number for number, _ in kernels}) < len(kernels)
    kept = [one if one in kernels else most for one in said]
    return [f"{number} of process {pid}" if twice else number for number, pid in kept]


def _device_table(activity: Activity, windows: Sequence[Window], bad: UnusableRows) -> tuple[pa.Table, int, list[str]]:
    every = activity.device
    start, dur, good = _times([event for _, event in every])
    if not good.all():
        first = int((~good).argmax())
        text = json.dumps(every[first][1].as_dict())
        bad.add(INEXACT, first + 1, text, int((~good).sum()))
    devices = [one for one, usable in zip(_devices_of(every), good, strict=True) if usable]
    used = [one for one, usable in zip(every, good, strict=True) if usable]
    start, dur = start[good], dur[good]
    events = [event for _, event in used]
    names = [str(event.name) for event in events]
    asking = [index for index, name in enumerate(names) if asks_operator(name)]
    said = dict(zip(asking, _launched_by([events[index] for index in asking], activity), strict=True))
    streams, cores, families, groups = [], [], [], []
    for index, ((category, event), name) in enumerate(zip(used, names, strict=True)):
        args, by = event.arguments, said.get(index, _NOBODY)
        family = torch_family(name, _text(args.collective) or by.stated, by.operator)
        streams.append(str(event.tid if args.stream is UNSET else args.stream))
        cores.append(COMMUNICATION if family else COMPUTE if category == KERNEL else COPY)
        families.append(family)
        groups.append((by.group if args.group is UNSET else str(args.group)) if family else "")
    # A kernel belongs to the step that launched it, whenever it runs: two steps overlap on an asynchronous device.
    launched = _launch_times(events, start, activity)
    steps = step_of(launched, windows)
    kept = launched if len(windows) < 2 else None  # else the steps are known
    return kernel_table(steps, streams, cores, names, families, groups, start, dur, kept), len(every), devices


def _launched_by(asking: list[TraceEvent], activity: Activity) -> list[Launch]:
    if not asking:
        return []
    wanted = {_correlation(event) for event in asking} - {None}
    calls = {
        category: [event.as_dict() for event in events if _correlation(event) in wanted]
        for category, events in activity.launches.items()
    }
    groups = calls | activity.naming_collectives()
    return launched_by([event.as_dict() for event in asking], groups, activity.launch_categories)


def _text(value: Any) -> str:
    return str(value) if value is not UNSET and value else ""


def _times(events: Sequence[TraceEvent]) -> tuple[Int64s, Int64s, np.ndarray]:
    start, start_ok = nanoseconds(pa.array([written(event.ts) for event in events], pa.string()))
    dur, dur_ok = nanoseconds(pa.array([written(event.dur) for event in events], pa.string()))
    return start, dur, start_ok & dur_ok & (dur >= 0)


def _launch_times(events: list[TraceEvent], start: Int64s, activity: Activity) -> Int64s:
    """Return when each device event was launched on the host, ``UNLAUNCHED`` where the trace has launches and not its
    own (it was launched before the trace began); its own start in a trace without launches."""
    every = (call for name in activity.launch_categories for call in activity.launches.get(name, ()))
    calls = [call for call in every if _correlation(call) is not None]
    if all(_NO_LAUNCH.search(str(call.name)) for call in calls):
        return start
    at, good = nanoseconds(pa.array([written(call.ts) for call in calls], pa.string()))
    times = np.where(good, at, UNLAUNCHED).tolist()
    when = {_correlation(call): time for call, time in zip(calls, times, strict=True)}
    return np.asarray([when.get(_correlation(event), UNLAUNCHED) for event in events], np.int64)


def _correlation(event: TraceEvent) -> int | str | None:
    value = event.arguments.correlation
    return value if isinstance(value, int | str) else None
