"""Host operators of a torch trace without a device: what its threads compute, what only hands on, and gloo.

A kernel is an operator that computes, whole, with the allocations and casts that it calls. All else that is recorded on
its thread (dispatch modes, autograd functions, Python functions, composite operators, the start of a collective) is
host overhead for as long as none of what it calls runs. Every thread that runs operators counts (the backward pass of
autograd has one of its own), but gloo's: what those run is their collective. Times of threads are never added up: a
rank computes while any of its threads does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

import numpy as np
import pyarrow as pa

from anchormatrix.captures.csvfile import UnusableRows
from anchormatrix.captures.decimals import Int64s
from anchormatrix.captures.kineto_events import Event, Window, kernel_table, step_of, usable_events
from anchormatrix.captures.names import COMMUNICATION, COMPUTE, HOST, torch_family
from anchormatrix.captures.naming.host_work import Work, is_preparation, work_of

_PYTHON = "python_function"
_WRAPPER_SHARE = 0.5


def operator_table(
    operators: list[Event], complete: list[Event], windows: Sequence[Window], bad: UnusableRows
) -> tuple[pa.Table, int]:
    """Return the kernels of a trace without a device, and how many events were read."""
    transfers = [event for event in complete if _is_gloo(event)]
    operators = [event for event in operators if not _is_gloo(event)]
    read = len(operators) + len(transfers)
    operators, start, dur = usable_events(operators, bad)
    threads = _working_threads(operators, dur, {_thread(event) for event in transfers})
    transfers, transfer_start, transfer_dur = usable_events(transfers, bad)
    communicators = _gloo_groups(transfer_start, operators, start, dur)
    functions = [event for event in complete if event.get("cat") == _PYTHON and _thread(event) in threads]
    read += len(functions)
    functions, function_start, function_dur = usable_events(functions, bad)
    steps = {(window.start_ns, window.end_ns - window.start_ns) for window in windows}
    recorded: dict[tuple[str, str], list[tuple[Event, int, int]]] = {thread: [] for thread in threads}
    for event, begin, length in zip(operators, start.tolist(), dur.tolist(), strict=True):
        if _thread(event) in recorded and (begin, length) not in steps:
            recorded[_thread(event)].append((event, begin, length))
    for event, begin, length in zip(functions, function_start.tolist(), function_dur.tolist(), strict=True):
        recorded[_thread(event)].append((event, begin, length))
    rows = [(thread[1], *row) for thread, mine in recorded.items() for row in _Thread(mine).rows()]
    all_start = np.concatenate([np.asarray([row[3] for row in rows], np.int64), transfer_start])
    table = kernel_table(
        step_of(all_start, windows),
        [tid if core == COMPUTE else f"host {tid}" for tid, core, *_ in rows]
        + [f"gloo {event.get('tid', '')}" for event in transfers],
        [core for _, core, *_ in rows] + [COMMUNICATION] * len(transfers),
        [name for _, _, name, *_ in rows] + [str(event["name"]) for event in transfers],
        [""] * len(rows) + [torch_family(str(event["name"])) for event in transfers],
        [""] * len(rows) + communicators,
        all_start,
        np.concatenate([np.asarray([row[4] for row in rows], np.int64), transfer_dur]),
    )
    return table, read


def _is_gloo(event: Event) -> bool:
    return str(event.get("name", "")).startswith("gloo:")


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid", "")), str(event.get("tid", ""))


def _working_threads(
    operators: list[Event], dur: Int64s, of_gloo: Container[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """Return the threads whose operators count, with the time of these, in order of appearance.

    The busiest always counts: a trace may show gloo's operations on the thread that started them.
    """
    busy: dict[tuple[str, str], int] = defaultdict(int)
    for event, length in zip(operators, dur.tolist(), strict=True):
        busy[_thread(event)] += length
    busiest = max(busy.values(), default=0)
    return {thread: time for thread, time in busy.items() if time == busiest or thread not in of_gloo}


class _Thread:
    """The operators and Python functions of one thread as a tree, times in ns."""

    def __init__(self, recorded: Sequence[tuple[Event, int, int]]) -> None:
        self.names = [str(event.get("name", "")) for event, _, _ in recorded]
        python = [event.get("cat") == _PYTHON for event, _, _ in recorded]
        self.works = [work_of(name, python=is_python) for name, is_python in zip(self.names, python, strict=True)]
        self.start, self.dur = [begin for _, begin, _ in recorded], [length for _, _, length in recorded]
        self.order = np.lexsort((-np.asarray(self.dur, np.int64), np.asarray(self.start, np.int64))).tolist()
        self.children: dict[int, list[int]] = defaultdict(list)
        self.roots: list[int] = []
        opened: list[int] = []
        for index in self.order:
            while opened and self._end(opened[-1]) <= self.start[index]:
                opened.pop()
            (self.children[opened[-1]] if opened else self.roots).append(index)
            opened.append(index)
        self.kernels = self._kernels()

    def rows(self) -> list[tuple[str, str, int, int]]:
        """Return core, name, start and duration of every kernel, and of every piece of own time of what hands on."""
        found = []
        waiting = self.roots[::-1]
        while waiting:
            index = waiting.pop()
            name, work, begin, end = self.names[index], self.works[index], self.start[index], self._end(index)
            if index in self.kernels:
                found.append((COMPUTE, name, begin, end - begin))
                continue
            # What the communication layer calls is its own work.
            inner = [] if work is Work.COMMUNICATES else self.children.get(index, [])
            for child in inner if work is not Work.WAITS else ():
                if self.start[child] > begin:
                    found.append((HOST, name, begin, self.start[child] - begin))
                begin = max(begin, self._end(child))
            if end > begin and work is not Work.WAITS:
                found.append((HOST, name, begin, end - begin))
            waiting += inner[::-1]
        return found

    def _end(self, index: int) -> int:
        return self.start[index] + self.dur[index]

    def _kernels(self) -> set[int]:
        """Return the operators that compute themselves.

        An operator is none when what it calls ends in Python or in the communication layer, or when other kernels fill
        half of it or more: then it hands on, whatever its name.
        """
        kernels, computing, leaving = set(), set(), set()
        for index in reversed(self.order):
            inner = self.children.get(index, [])
            filled = sum(self.dur[child] for child in inner if child in computing)
            if any(child in leaving for child in inner):
                leaving.add(index)
            elif self.works[index] is Work.COMPUTES and not (filled and filled >= _WRAPPER_SHARE * self.dur[index]):
                kernels.add(index)
            elif self.works[index] is not Work.COMPUTES and "::" not in self.names[index]:
                leaving.add(index)
            if self.works[index] in (Work.COMMUNICATES, Work.WAITS):
                leaving.add(index)
            if filled or (index in kernels and not is_preparation(self.names[index])):
                computing.add(index)
        return kernels


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
