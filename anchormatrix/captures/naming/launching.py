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
    spans = _spans(hosts)
    found = []
    for kernel in kernels:
        launch = launches.get(_argument(kernel, "correlation"))
        event = by_id.get(_argument(kernel, "External id"))
        if event is None and launch is not None:
            event = by_id.get(_argument(launch, "External id")) or _open_at(spans, launch)
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


_Spans = dict[tuple[str, str], tuple[list[int], list[tuple[int, Event]]]]


def _spans(hosts: list[Event]) -> _Spans:
    """Return, by thread, the starts of its operators and their ends, in order of start."""
    start, dur, good = times_of(hosts)
    threads: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for number, (begin, length, usable) in enumerate(zip(start.tolist(), dur.tolist(), good.tolist(), strict=True)):
        if usable:
            threads[_thread(hosts[number])].append((begin, begin + length, number))
    return {
        thread: ([one[0] for one in ordered], [(end, hosts[number]) for _, end, number in ordered])
        for thread, ordered in ((thread, sorted(spans)) for thread, spans in threads.items())
    }


def _open_at(spans: _Spans, launch: Event) -> Event | None:
    starts, ends = spans.get(_thread(launch), ([], []))
    at, _, good = times_of([launch])
    if not good[0]:
        return None
    time = int(at[0])
    last = bisect_right(starts, time)
    # A few operators lie within each other; one that ended long ago hides none that is still open for ever.
    inside = (event for end, event in reversed(ends[max(0, last - 64) : last]) if time <= end)
    return next(inside, None)
