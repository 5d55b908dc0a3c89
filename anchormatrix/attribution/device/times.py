"""The times at which kernels of each kind run on a rank's device, and how much of them lies in a stretch of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from anchormatrix.attribution.intervals import Intervals, union_of
from anchormatrix.captures.names import COMPUTE, COPY, HOST
from anchormatrix.captures.table import is_collective, is_core


def compute_mask(kernels: pd.DataFrame) -> np.ndarray:
    """Return which kernels count as Computing: those on compute cores that are no collectives."""
    return is_core(kernels, COMPUTE) & ~is_collective(kernels)


@dataclass(frozen=True, eq=False)
class KernelTimes:
    """The times at which kernels of each kind run.

    ``host``: a wrapper's own time beside neither computing nor communication; ``other``: what is no computing, no
    communication and no copy.
    """

    computing: Intervals
    host: Intervals
    communication: Intervals
    exposed: Intervals
    bubble: Intervals
    copy: Intervals
    other: Intervals

    def within(self, start: np.ndarray, end: np.ndarray) -> pd.DataFrame:
        """Return the parts of each stretch of time."""
        computing, communication, exposed, host = (
            one.covered(start, end) for one in (self.computing, self.communication, self.exposed, self.host)
        )
        return pd.DataFrame(
            {
                "stage_ns": end - start,
                "computing_ns": computing,
                "exposed_ns": exposed,
                "overlapped_ns": communication - exposed,
                "communication_ns": communication,
                "free_ns": end - start - computing - exposed - host,
                "bubble_ns": self.bubble.covered(start, end),
                "copy_ns": self.copy.covered(start, end),
                "host_ns": host,
            }
        )


def times_of(kernels: pd.DataFrame) -> KernelTimes:
    """Return the times of one rank's kernels."""
    collective, computing = is_collective(kernels), compute_mask(kernels)
    copying = is_core(kernels, COPY) & ~collective
    receives = collective & kernels["family"].isin(["receive"]).to_numpy()
    compute, communication = union_of(kernels, computing), union_of(kernels, collective)
    exposed = communication - compute
    return KernelTimes(
        computing=compute,
        host=union_of(kernels, is_core(kernels, HOST) & ~collective) - exposed - compute,
        communication=communication,
        exposed=exposed,
        bubble=union_of(kernels, receives) & exposed,
        copy=union_of(kernels, copying),
        other=union_of(kernels, ~(collective | computing | copying)),
    )


def whole(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of the time from the first of these kernels to the last."""
    start = kernels["start_ns"].to_numpy()
    end = start + kernels["dur_ns"].to_numpy()
    return times_of(kernels).within(start.min(keepdims=True), end.max(keepdims=True))
