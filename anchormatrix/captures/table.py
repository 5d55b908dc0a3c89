"""The one kernel table that both families of profiler files become, and the step table beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from anchormatrix.records.finding import Finding

KERNEL_COLUMNS = ("rank", "step", "stream", "core", "name", "family", "communicator", "start_ns", "dur_ns")
STEP_COLUMNS = (
    *("rank", "step", "stage_ns", "computing_ns", "exposed_ns", "overlapped_ns", "communication_ns", "free_ns"),
    *("bubble_ns", "preparing_ns"),
)
OUTSIDE = -1
MOST_RANKS = 32767  # what the rank column can hold
NO_STREAM = "N/A"  # ``N/A 445``: calls on communicator 445 whose stream the files do not name


def no_calls() -> pd.DataFrame:
    """Return a table of no calls."""
    times = {column: np.empty(0, np.int64) for column in ("start_ns", "end_ns")}
    return pd.DataFrame({"rank": np.empty(0, np.int64), "name": np.empty(0, object), **times})


@dataclass(frozen=True)
class Capture:
    """One profiler capture over all its ranks.

    ``kernels``: ``KERNEL_COLUMNS``, ordered by rank and start; ``family`` is empty for a kernel that is no collective,
    ``step`` is ``OUTSIDE`` for a kernel that belongs to no step, times are integer nanoseconds of the rank's own clock
    (clocks of two ranks are never compared). ``steps``: ``STEP_COLUMNS`` as the profiler wrote them, or None.
    ``windows``: ``rank, step, start_ns, end_ns`` of annotated steps (empty where the files have none). ``rows_read``
    counts usable and unusable rows; ``rows_unusable`` says why, by cause. ``findings``: what a person should know of
    the files themselves.

    Of traces in which no steps are told apart, ``kernels`` may also have ``launched_ns``, when the host launched each,
    and ``calls`` (``rank, name, start_ns, end_ns``) are those of modules and annotations on the host. ``cut``: by what
    the steps were cut out of a whole request, empty where the files tell them.
    """

    kernels: pd.DataFrame
    steps: pd.DataFrame | None
    windows: pd.DataFrame
    family: str
    rows_read: int
    rows_unusable: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    calls: pd.DataFrame = field(default_factory=no_calls)
    cut: str = ""
    findings: tuple[Finding, ...] = ()

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that has kernels, ascending."""
        return tuple(int(rank) for rank in np.unique(self.kernels["rank"].to_numpy()))

    @cached_property
    def step_ids(self) -> tuple[int, ...]:
        """Every step that some kernel belongs to, ascending, without ``OUTSIDE``."""
        return tuple(int(step) for step in np.unique(self.kernels["step"].to_numpy()) if step != OUTSIDE)

    @property
    def unusable(self) -> int:
        """Number of unusable rows, all causes together."""
        return sum(self.rows_unusable.values())

    def of_rank(self, rank: int, step: int | None = None) -> pd.DataFrame:
        """Return one rank's kernels, of one step when it is given, ordered by start."""
        ranks = self.kernels["rank"].to_numpy()
        rows = self.kernels.iloc[slice(*np.searchsorted(ranks, [rank, rank + 1]))]
        if step is None:
            return rows
        steps = rows["step"].to_numpy()
        return rows if bool((steps == step).all()) else rows[steps == step]

    def per_rank(self, step: int | None = None) -> Iterator[tuple[int, pd.DataFrame]]:
        """Iterate over ``(rank, kernels)``."""
        for rank in self.ranks:
            yield rank, self.of_rank(rank, step)


def is_collective(kernels: pd.DataFrame) -> np.ndarray:
    """Return a mask of the rows that are collectives, on whatever core they run."""
    categories = kernels["family"].cat.categories
    if "" not in categories:
        return np.ones(len(kernels), dtype=bool)
    return kernels["family"].cat.codes.to_numpy() != categories.get_loc("")


def is_core(kernels: pd.DataFrame, *cores: str) -> np.ndarray:
    """Return a mask of the rows whose core class is one of ``cores``."""
    categories = kernels["core"].cat.categories
    wanted = np.asarray([core in cores for core in categories] or [False])
    return np.asarray(wanted[kernels["core"].cat.codes.to_numpy()])


def is_without_stream(kernels: pd.DataFrame) -> np.ndarray:
    """Return a mask of the rows whose stream the files do not name."""
    without = np.asarray([str(label).startswith(NO_STREAM) for label in kernels["stream"].cat.categories] or [False])
    return np.asarray(without[kernels["stream"].cat.codes.to_numpy()])


def empty_windows() -> pd.DataFrame:
    """Return a table of no annotated steps."""
    return pd.DataFrame({column: np.empty(0, np.int64) for column in ("rank", "step", "start_ns", "end_ns")})
