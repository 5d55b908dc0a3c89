"""Host operators of a torch trace without a device: what the busiest thread computes, and its gloo operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anchormatrix.captures.csvfile import UnusableRows
from anchormatrix.captures.decimals import Int64s
from anchormatrix.captures.kineto_events import Event, Window, kernel_table, step_of, usable_events
from anchormatrix.captures.names import COMMUNICATION, COMPUTE, torch_family

_NOT_COMPUTE = ("c10d::", "_c10d_functional::", "c10d_functional::", "gloo:", "record_param_comms", "ProfilerStep")
_WRAPPER_SHARE = 0.5


def operator_table(
    operators: list[Event], complete: list[Event], windows: Sequence[Window], bad: UnusableRows
) -> tuple[pa.Table, int]:
    """Return the kernels of a trace without a device, and how many events were read."""
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
