"""Host operators of a torch trace without a device: what its main thread computes, what only hands on, and gloo.

A kernel is an operator that computes, whole, with the allocations and casts that it calls. All else that is recorded on
that thread (dispatch modes, autograd functions, Python functions, composite operators, the start of a collective) is
host overhead for as long as none of what it calls runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

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
    transfers = [event for event in complete if str(event.get("name", "")).startswith("gloo:")]
    operators = [event for event in operators if not str(event.get("name", "")).startswith("gloo:")]
    read = len(operators) + len(transfers)
    operators, start, dur = usable_events(operators, bad)
    thread = _busiest_thread(operators, dur)
    transfers, transfer_start, transfer_dur = usable_events(transfers, bad)
    communicators = _gloo_groups(transfer_start, operators, start, dur)
    functions = [event for event in complete if event.get("cat") == _PYTHON and _thread(event) == thread]
    read += len(functions) if operators else 0
    steps = {(window.start_ns, window.end_ns - window.start_ns) for window in windows}
    mine = [
        (event, begin, length)
        for event, begin, length in zip(operators, start.tolist(), dur.tolist(), strict=True)
        if _thread(event) == thread and (begin, length) not in steps
    ]
    functions, function_start, function_dur = usable_events(functions if operators else [], bad)
    mine += zip(functions, function_start.tolist(), function_dur.tolist(), strict=True)
    names = [str(event.get("name", "")) for event, _, _ in mine]
    works = [work_of(name, python=event.get("cat") == _PYTHON) for (event, _, _), name in zip(mine, names, strict=True)]
    rows = _Thread(names, works, [begin for _, begin, _ in mine], [length for _, _, length in mine]).rows()
    tid = thread[1]
    all_start = np.concatenate([np.asarray([row[2] for row in rows], np.int64), transfer_start])
    table = kernel_table(
        step_of(all_start, windows),
        [tid if core == COMPUTE else f"host {tid}" for core, *_ in rows]
        + [f"gloo {event.get('tid', '')}" for event in transfers],
        [core for core, *_ in rows] + [COMMUNICATION] * len(transfers),
        [name for _, name, *_ in rows] + [str(event["name"]) for event in transfers],
        [""] * len(rows) + [torch_family(str(event["name"])) for event in transfers],
        [""] * len(rows) + communicators,
        all_start,
        np.concatenate([np.asarray([row[3] for row in rows], np.int64), transfer_dur]),
    )
    return table, read


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid", "")), str(event.get("tid", ""))


def _busiest_thread(operators: list[Event], dur: Int64s) -> tuple[str, str]:
    busy: dict[tuple[str, str], int] = defaultdict(int)
    for event, length in zip(operators, dur.tolist(), strict=True):
        busy[_thread(event)] += length
    return max(busy, key=lambda thread: busy[thread], default=("", ""))


class _Thread:
    """The operators and Python functions of one thread as a tree, times in ns."""

    def __init__(self, names: list[str], works: list[Work], start: list[int], dur: list[int]) -> None:
        self.names, self.works, self.start, self.dur = names, works, start, dur
        self.order = np.lexsort((-np.asarray(dur, np.int64), np.asarray(start, np.int64))).tolist()
        self.children: dict[int, list[int]] = defaultdict(list)
        self.roots: list[int] = []
        opened: list[int] = []
        for index in self.order:
            while opened and self._end(opened[-1]) <= start[index]:
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
