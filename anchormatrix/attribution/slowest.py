"""The slowest rank of a step: the one rule by which every analysis, decision and page names it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from anchormatrix.records.attribution import StepRow


def slowest(table: pd.DataFrame) -> dict[str, int]:
    """Return the row of the slowest rank of one step: longest stage, and of equal ones the most compute, because the
    ranks that wait for it do so inside their collectives."""
    row = table.sort_values(["stage_ns", "computing_ns"], ascending=False, kind="stable").iloc[0]
    return {str(key): int(value) for key, value in row.items() if key != "source"}


def slowest_rank(rows: Iterable[StepRow]) -> StepRow | None:
    """Return the row of the longest stage, and of equal ones the most computing.

    The ranks that wait for it do so inside their collectives, so the most computing marks the one waited for.
    """
    return max(rows, key=lambda row: (row.stage_ms, row.computing_ms), default=None)
