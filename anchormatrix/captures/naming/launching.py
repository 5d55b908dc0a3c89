"""The collective that launched a kernel, for kernels whose own name does not say: by external id, or by the enclosing
operator at the time of the launch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from anchormatrix.captures.kineto_events import Event, times_of
from anchormatrix.captures.names import operator_family, stated_family

_HOST = ("cpu_op", "operator", "user_annotation")


class Launch(NamedTuple):
    """What launched a kernel: operator, the collective it states and its process group, each empty if not known."""

    operator: str = ""
    stated: str = ""
    group: str = ""


def launched_by(
    kernels: Sequence[Event], groups: Mapping[str, list[Event]], launch_categories: Iterable[str]
) -> list[Launch]:
    """Return what launched each kernel, of the operators that name a collective.

    A kernel carries the external id of its operator (Kineto: "External id"), or its launch does; else it belongs to the
    innermost such operator that was open on the launching thread.
    """
    if not kernels:
        return []
    hosts = [event for category in _HOST for event in groups.get(category, ()) if _names_collective(event)]
    if not hosts:
        return [Launch()] * len(kernels)
    by_id = {number: event for event in hosts if (number := _argument(event, "External id")) is not None}
    wanted = {_argument(event, "correlation") for event in kernels} - {None}
    launches = {
        number: event
        for category in launch_categories
        for event in groups.get(category, ())
        if (number := _argument(event, "correlation")) in wanted
    }
    threads = _threads(hosts)
    at, _, good = times_of([{"dur": 0, **event} for event in launches.values()])
    when = {number: time for number, time, usable in zip(launches, at.tolist(), good.tolist(), strict=True) if usable}
    found = []
    for kernel in kernels:
        number = _argument(kernel, "correlation")
        launch = launches.get(number)
        event = by_id.get(_argument(kernel, "External id"))
        if event is None and launch is not None:
            event = by_id.get(_argument(launch, "External id")) or _open_at(
                threads.get(_thread(launch)), when.get(number)
            )
        found.append(_launch(event) if event is not None else Launch())
    return found


def _names_collective(event: Event) -> bool:
    return bool(operator_family(str(event.get("name", ""))) or stated_family(_text(event, "Collective name")))


def _launch(event: Event) -> Launch:
    return Launch(str(event.get("name", "")), _text(event, "Collective name"), _text(event, "Process Group Name"))


def _argument(event: Event, key: str) -> Any:
    args = event.get("args")
    value = args.get(key) if isinstance(args, dict) else None
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def _text(event: Event, key: str) -> str:
    value = _argument(event, key)
    return "" if value is None else str(value)


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid", "")), str(event.get("tid", ""))


class _Thread(NamedTuple):
    """The operators of one thread in order of their starts; ``parents``: which of them each lies in, -1 for none."""

    starts: list[int]
    ends: list[int]
    events: list[Event]
    parents: list[int]


def _threads(hosts: list[Event]) -> dict[tuple[str, str], _Thread]:
    start, dur, good = times_of(hosts)
    threads: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for number, (begin, length, usable) in enumerate(zip(start.tolist(), dur.tolist(), good.tolist(), strict=True)):
        if usable:
            threads[_thread(hosts[number])].append((begin, -begin - length, number))
    return {thread: _nested(sorted(spans), hosts) for thread, spans in threads.items()}


def _nested(spans: list[tuple[int, int, int]], hosts: list[Event]) -> _Thread:
    found = _Thread([], [], [], [])
    still_open: list[int] = []
    for place, (begin, minus_end, number) in enumerate(spans):
        while still_open and found.ends[still_open[-1]] < begin:
            still_open.pop()
        found.starts.append(begin)
        found.ends.append(-minus_end)
        found.events.append(hosts[number])
        found.parents.append(still_open[-1] if still_open else -1)
        still_open.append(place)
    return found


def _open_at(thread: _Thread | None, time: int | None) -> Event | None:
    if thread is None or time is None:
        return None
    place = bisect_right(thread.starts, time) - 1
    while place >= 0 and thread.ends[place] < time:
        place = thread.parents[place]
    return thread.events[place] if place >= 0 else None
