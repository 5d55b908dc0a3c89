"""The place of each annotated step on the device: from when to when the device works for it.

A step is annotated on the host, and the device runs behind the host. Its kernels are those launched within the
annotation (``ProfilerStep#n`` or any other). Kineto's ``gpu_user_annotation`` spans what an annotation launched on one
stream (pytorch/kineto, libkineto/src/GenericActivityProfiler.cpp), so those of two steps may overlap and no time could
be shared out by them. For times, the device is divided at boundaries that all kernels share:

* A step begins with its annotation. Where the host ran ahead, so that the compute stream was then still at work for
  the step before, it begins when that work is done, and when the device turns to it: at its own first kernel or at the
  end of the last one of the step before, whichever comes first.
* A step ends with its annotation or its own last kernel, whichever is later, and at the latest where the next begins.

What a kernel of any step does within these times counts there, whoever launched it; the rest is outside. A step that
launched nothing is no step of the device.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from anchormatrix.attribution.device.times import compute_mask
from anchormatrix.captures.table import OUTSIDE

Int64s = npt.NDArray[np.int64]
_NEVER = int(np.iinfo(np.int64).min)


def step_spans(kernels: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Return ``step, start_ns, end_ns, first_ns`` of one rank's steps, in their order; ``first_ns``: its first kernel.

    ``windows`` are the rank's annotations. Without any, a step runs from its first kernel to its last and steps may
    overlap.
    """
    step, start = kernels["step"].to_numpy(), kernels["start_ns"].to_numpy()
    mine = pd.DataFrame({"step": step, "first_ns": start, "last_ns": start + kernels["dur_ns"].to_numpy()})
    owned = step != OUTSIDE
    found = mine[owned].groupby("step").agg({"first_ns": "min", "last_ns": "max"})
    if not len(windows):
        found = found.assign(start_ns=found["first_ns"], end_ns=found["last_ns"])
        return found.reset_index()[["step", "start_ns", "end_ns", "first_ns"]]
    computing = owned & compute_mask(kernels)
    earliest = mine[computing].groupby("step")["first_ns"].min()
    in_order = mine[_on_main_stream(kernels, computing)].groupby("step")["last_ns"].max()
    found = windows.set_index("step")[["start_ns", "end_ns"]].join(found, how="inner")
    found = found.sort_values("start_ns", kind="stable")
    found["earliest_ns"] = [int(earliest.get(one, first)) for one, first in found["first_ns"].items()]
    found["in_order_ns"] = [int(in_order.get(one, _NEVER)) for one in found.index]
    begins = _begins(found)
    last = np.maximum(begins, np.maximum(found["end_ns"].to_numpy(), found["last_ns"].to_numpy()))
    found["end_ns"] = np.minimum(last, np.append(begins[1:], np.iinfo(np.int64).max))
    found["start_ns"] = begins
    return found.reset_index()[["step", "start_ns", "end_ns", "first_ns"]]


def _begins(steps: pd.DataFrame) -> Int64s:
    columns = ["start_ns", "first_ns", "last_ns", "earliest_ns", "in_order_ns"]
    begun = busy_until = last_before = _NEVER
    found = []
    for annotated, first, last, earliest, in_order in steps[columns].itertuples(index=False):
        begin = annotated
        if busy_until > annotated:
            begin = max(annotated, min(earliest, max(busy_until, min(first, last_before))))
        begun = max(begun, begin)
        busy_until, last_before = max(busy_until, in_order), max(last_before, last)
        found.append(begun)
    return np.asarray(found, np.int64)


def _on_main_stream(kernels: pd.DataFrame, computing: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the computing kernels of the stream that computes most: it runs in the order of launches."""
    streams = kernels["stream"].cat.codes.to_numpy()
    if not computing.any():
        return computing
    busy = np.bincount(streams[computing], weights=kernels["dur_ns"].to_numpy()[computing])
    return np.asarray(computing & (streams == int(busy.argmax())))
