"""The slowest rank of a step, and ranks that share its work unevenly: one rule for every analysis, decision and page.

The ranks of a step meet in its collectives and end together, so the longest of several nearly equal stages is noise,
and often that of a rank that waits. Ranks whose stages lie within ``EQUAL_PCT`` of the longest are equal, and the one
of them that computes most stands for the step: the others wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from anchormatrix.attribution.intervals import ms
from anchormatrix.records.attribution import StepRow
from anchormatrix.records.finding import Finding

# A rank's last kernel ends within microseconds to a few milliseconds of its peers'; a stage that is longer by more
# than one percent of a step is longer for a reason.
EQUAL_PCT = 1.0
_STRAGGLER_PCT = 5.0  # of the median rank's own time
_IMBALANCE_PCT = 5.0  # of the stage


def slowest(table: pd.DataFrame) -> dict[str, int]:
    """Return the row of the slowest rank of one step."""
    return equal_to_slowest(table)[0]


def slowest_rank(rows: Iterable[StepRow]) -> StepRow | None:
    """Return the row of the slowest rank of one step; None without rows."""
    found = tuple(rows)
    if not found:
        return None
    return found[_longest([row.stage_ms for row in found], [row.computing_ms for row in found])[0]]


def equal_to_slowest(table: pd.DataFrame) -> list[dict[str, int]]:
    """Return the rows of one step as long as the longest within ``EQUAL_PCT``, the one that computes most first."""
    rows = table.drop(columns="source", errors="ignore").to_dict("records")
    order = _longest(table["stage_ns"].tolist(), table["computing_ns"].tolist())
    return [{str(key): int(value) for key, value in rows[index].items()} for index in order]


def check_stragglers(table: pd.DataFrame) -> list[Finding]:
    """Find ranks whose own time (Stage − exposed) is more than 5 % above the median: the others wait for them."""
    own = (table["stage_ns"] - table["exposed_ns"]).to_numpy()
    median = float(np.median(own)) if len(own) else 0.0
    return [
        Finding(
            "straggler", f"rank {rank} works {100 * (mine / median - 1):.1f} % longer than the median rank", (rank,)
        )
        for rank, mine in zip(table["rank"].tolist(), own.tolist(), strict=True)
        if median > 0 and mine > median * (1 + _STRAGGLER_PCT / 100) and len(own) > 1
    ]


def check_imbalance(table: pd.DataFrame) -> list[Finding]:
    """Find equally long ranks of one step whose computing differs by more than 5 % of the stage."""
    rows = equal_to_slowest(table)
    most, least = rows[0], rows[-1]
    if 100 * (most["computing_ns"] - least["computing_ns"]) <= _IMBALANCE_PCT * most["stage_ns"]:
        return []
    text = (
        f"the ranks end together and share the work unevenly: of {ms(most['stage_ns']):.4g} ms rank {most['rank']} "
        f"computes {ms(most['computing_ns']):.4g} ms and rank {least['rank']} {ms(least['computing_ns']):.4g} ms"
    )
    return [Finding("imbalance", text, (most["rank"], least["rank"]))]


def _longest(stages: Sequence[float], computing: Sequence[float]) -> list[int]:
    """The places of the stages equal to the longest, the one with most computing first, then the longer stage."""
    shortest = max(stages) * (1 - EQUAL_PCT / 100)
    equal = [index for index, stage in enumerate(stages) if stage >= shortest]
    return sorted(equal, key=lambda index: (-computing[index], -stages[index]))
