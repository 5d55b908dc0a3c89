"""The calls on the host that a trace has by name: modules (``nn.Module: …``) and annotations (``record_function``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.kineto_events import STEP_NAME, Event, times_of

MODULE = "nn.Module: "  # torch's Python tracer: torch/csrc/autograd/profiler_python.cpp, class and running number
_MOST = 4096  # calls of a name: what is called more often is no whole transformer
_DENOISER = re.compile(r"transformer|dit|unet|denois", re.IGNORECASE)
_OTHERS = re.compile(r"text|encoder|decoder|clip|t5|vae|block|layer|embed|sched", re.IGNORECASE)
_INSTANCE = re.compile(r"_\d+$")  # two experts of one class share the steps of a request


class Call(NamedTuple):
    """A call: its name, and its start and end in ns on the rank's clock."""

    name: str
    start_ns: int
    end_ns: int


def named_calls(events: Sequence[Event]) -> tuple[Call, ...]:
    """Return the calls of modules, and annotations that are no steps and no collectives, in the order of the trace."""
    named = [event for event in events if _is_call(event)]
    start, dur, good = times_of(named)
    found = [
        Call(_INSTANCE.sub("", str(event["name"])), begin, begin + length)
        for event, begin, length, usable in zip(named, start.tolist(), dur.tolist(), good.tolist(), strict=True)
        if usable
    ]
    counts: dict[str, int] = {}
    for one in found:
        counts[one.name] = counts.get(one.name, 0) + 1
    return tuple(one for one in found if counts[one.name] <= _MOST)


def _is_call(event: Event) -> bool:
    name = str(event.get("name", ""))
    if event.get("cat") == "python_function":
        return name.startswith(MODULE)
    return event.get("cat") == "user_annotation" and not STEP_NAME.fullmatch(name) and ":" not in name


class StepCalls(NamedTuple):
    """The calls of a transformer: their name, when the first of each step begins, and when the last of all ends."""

    name: str
    begin_ns: np.ndarray
    end_ns: int


def of_steps(calls: pd.DataFrame, kernels: pd.DataFrame, request: Request) -> StepCalls | None:
    """Return the calls of the transformer, ``branches`` a step: of those of the expected number that take as long as
    the steps may, the longest; None where no name says it.

    How long they take is what the kernels do that they launch: the host may run far ahead of the device.
    """
    launched, start = kernels[launched_or_start(kernels)].to_numpy(), kernels["start_ns"].to_numpy()
    end_ns = start + kernels["dur_ns"].to_numpy()
    whole_s = float(end_ns.max() - start.min()) / 1e9
    for each in sorted({1, request.branches}):
        best: tuple[int, StepCalls] | None = None
        for name, mine in calls.groupby("name", sort=True, observed=True):
            if len(mine) != request.iterations * each or not _may_denoise(str(name)):
                continue
            begin, end = np.sort(mine["start_ns"].to_numpy()), np.sort(mine["end_ns"].to_numpy())
            mine_too = (launched >= begin[0]) & (launched < end[-1])
            if (begin[1:] < end[:-1]).any() or not mine_too.any():
                continue
            if not request.may_take(float(end_ns[mine_too].max() - start[mine_too].min()) / 1e9, whole_s):
                continue
            took = int((end - begin).sum())
            if best is None or took > best[0]:
                best = took, StepCalls(str(name), begin[::each], int(end[-1]))
        if best is not None:
            return best[1]
    return None


def launched_or_start(kernels: pd.DataFrame) -> str:
    """Return the column that says which call a kernel belongs to: its launch, or its own start without launches."""
    return "launched_ns" if "launched_ns" in kernels else "start_ns"


def _may_denoise(name: str) -> bool:
    return _DENOISER.search(name) is not None and not _OTHERS.search(name)
