"""What ran in a torch trace: its device events, launches and host events, or why no kernel can be read from it.

Categories are those of Kineto (pytorch/kineto, libkineto/src/ActivityType.cpp); XPU and PrivateUse1 plug-ins write
their kernels as ``kernel`` too, MTIA writes ``mtia_ccp_events``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from anchormatrix.captures.cutting.calls import MODULE
from anchormatrix.captures.kineto_events import Event
from anchormatrix.captures.names import operator_family, stated_family
from anchormatrix.captures.torch.stream import TraceEvent
from anchormatrix.errors import InputError

KERNEL = "kernel"
COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "privateuse1_runtime", "xpu_runtime")
OPERATORS = ("cpu_op", "operator")
_STACKS = "python_function"
_ANNOTATIONS = ("user_annotation",)
_KEPT = frozenset((KERNEL, *COPIES, *LAUNCHES, *OPERATORS, *_ANNOTATIONS, _STACKS))
# What else the host writes, and what a device writes beside its kernels.
_HOST = frozenset(
    ("", "none", "cpu_instant_event", "overhead", "trace", "external_correlation", "fwdbwd", "ac2g", "itrace")
)
_BESIDE = frozenset(("gpu_user_annotation", "cuda_sync", "cuda_event", "xpu_sync", "cuda_profiler_range"))
_CALLS = re.compile(r"(?:^|_)(?:runtime|driver)(?:_api)?$")
_STARTS_WORK = re.compile(r"launch|memcpy|memset|enqueue|submit|execute", re.IGNORECASE)


class EmptyTraceError(InputError):
    """A trace that is whole and from which no kernel can be read. ``rank``: as its file states it."""

    rank: int | None = None


class Activity:
    """The complete events of a trace, those of use."""

    def __init__(self) -> None:
        self._lower: dict[Any, str] = {}
        self._names: dict[str, str] = {}
        self.restart()

    def restart(self) -> None:
        """Forget everything: of two lists of events the last counts, as in any JSON object."""
        self.device: list[tuple[str, TraceEvent]] = []
        self.launches: dict[str, list[TraceEvent]] = {}
        self.host: list[tuple[str, TraceEvent]] = []
        self.others: Counter[str] = Counter()
        self.events = 0
        self._started: Counter[str] = Counter()
        self._on_device: Counter[str] = Counter()
        self._stacks = True

    def take(self, events: list[Any]) -> None:
        """Add a piece of the trace."""
        self.events += len(events)
        for event in events:
            if not isinstance(event, TraceEvent) or event.ph != "X":
                continue
            category = self._category(event.cat)
            if category not in _KEPT:
                self._other(category, event)
                continue
            if category == _STACKS and not self._stacks and not str(event.name).startswith(MODULE):
                continue
            event.ts, event.dur = event.ts.copy(), event.dur.copy()
            if isinstance(event.name, str):
                event.name = self._names.setdefault(event.name, event.name)
            if category == KERNEL or category in COPIES:
                self.device.append((category, event))
            elif category in LAUNCHES:
                self._call(category, event)
                self.launches.setdefault(category, []).append(event)
            else:
                self.host.append((category, event))
        if self._stacks and self.device:
            # Of Python functions only the calls of modules are read beside a device.
            self._stacks = False
            self.host = [one for one in self.host if one[0] != _STACKS or str(one[1].name).startswith(MODULE)]

    def _category(self, written: Any) -> str:
        if not isinstance(written, str):
            return str(written).lower()
        found = self._lower.get(written)
        if found is None:
            found = self._lower[written] = written.lower()
        return found

    def _other(self, category: str, event: TraceEvent) -> None:
        self.others[category] += 1
        if str(event.name).startswith("gloo:"):
            event.ts, event.dur = event.ts.copy(), event.dur.copy()
            self.host.append((category, event))
        elif _CALLS.search(category):
            self._call(category, event)
            event.ts, event.dur = event.ts.copy(), event.dur.copy()
            self.launches.setdefault(category, []).append(event)
        elif category in _BESIDE or (category not in _HOST and _runs_on_device(category, event)):
            self._on_device[category] += 1

    def _call(self, category: str, event: TraceEvent) -> None:
        if _STARTS_WORK.search(str(event.name)):
            self._started[category] += 1

    @property
    def launch_categories(self) -> tuple[str, ...]:
        """The categories of the calls read, those known first; any runtime or driver starts kernels."""
        return (*LAUNCHES, *(category for category in self.launches if category not in LAUNCHES))

    @property
    def unknown(self) -> dict[str, int]:
        """Number of events of each category that seems to be device activity and is not known, beside kernels."""
        return {category: count for category, count in self._on_device.items() if category not in _BESIDE}

    def refuse_without_kernels(self, where: str) -> None:
        """Raise :class:`EmptyTraceError` for device activity or launches without a single kernel."""
        if any(category == KERNEL for category, _ in self.device):
            return
        found = self._on_device + Counter(category for category, _ in self.device)
        if found:
            raise EmptyTraceError(
                f"holds device activity and no kernel: events of {_listed(found)}",
                where=where,
                expected='the kernels of the device as events of category "kernel"',
                todo="the time on this device cannot be told: capture with kernels, or give the vendor's own output",
            )
        if self._started:
            raise EmptyTraceError(
                f"holds launches and no device activity: events of {_listed(self._started)}",
                where=where,
                expected='the kernels of the device as events of category "kernel"',
                todo="switch on the device in the profiler (activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], "
                "or that of the accelerator), with rights to trace it, and capture again",
            )

    def host_events(self, categories: Iterable[str] | None = None, name: re.Pattern[str] | None = None) -> list[Event]:
        """Return host events in the order of the file; of some categories and with such a name, if given."""
        wanted = None if categories is None else frozenset(categories)
        return [
            event.as_dict()
            for category, event in self.host
            if (wanted is None or category in wanted) and (name is None or name.fullmatch(str(event.name)))
        ]

    def naming_collectives(self) -> dict[str, list[Event]]:
        """Return the host events that name a collective, by category."""
        found: dict[str, list[Event]] = {}
        for category, event in self.host:
            stated = event.arguments.collective
            if operator_family(str(event.name)) or (stated is not UNSET and stated_family(str(stated))):
                found.setdefault(category, []).append(event.as_dict())
        return found


def _runs_on_device(category: str, event: TraceEvent) -> bool:
    """Whether an event of a category not known here is the device's: by its arguments or its category."""
    said = event.arguments
    return (
        any(value is not UNSET for value in (said.stream, said.device, said.correlation))
        or re.search(r"kernel|gpu|xpu|hpu|npu|mtia|privateuse|device|ccp|cuda|hip", category) is not None
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{category} ({count})" for category, count in sorted(counts.items()))
