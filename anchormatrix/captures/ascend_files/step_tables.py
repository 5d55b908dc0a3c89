"""The step tables of a capture as one: what each rank wrote, and how a cluster's table beside them compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from anchormatrix.captures.ascend import STEP_TABLE, read_step_trace
from anchormatrix.captures.csvfile import read_header
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding

_EQUAL_NS = 2_000  # both tables are rounded, to 1 µs at the coarsest
_SHOWN = 3
_KEYS = ["rank", "step"]


def is_cluster_table(path: Path) -> bool:
    """Whether a step table is of all ranks (``cluster_step_trace_time.csv`` of msprof-analyze): rank in ``Index``."""
    return {"Type", "Index"} <= set(read_header(path))


def read_step_tables(
    own: Mapping[Path, int], clusters: Sequence[Path], notes: list[str]
) -> tuple[pd.DataFrame | None, list[Finding]]:
    """Return the steps of all ranks, ordered by rank and step, and what the tables contradict each other in.

    ``own``: tables of one rank each with that rank. A rank's own table goes before the cluster's; the cluster's rows
    stand for ranks that have none.
    """
    tables = [read_step_trace(path, rank) for path, rank in own.items()]
    mine = _joined(tables) if tables else None
    findings: list[Finding] = []
    for path in clusters:
        cluster = _joined([read_step_trace(path, 0)])
        if mine is None:
            mine = cluster
            continue
        findings += _compared(mine, cluster, path.name, notes)
        more = cluster[~cluster["rank"].isin(mine["rank"])]
        if len(more):
            ranks = ", ".join(map(str, sorted(set(more["rank"].tolist()))))
            notes.append(f"ranks {ranks} have no step table of their own: {path.name} says their steps")
            mine = _joined([mine, more])
    return mine, findings


def _joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    steps = pd.concat(tables, ignore_index=True).sort_values(_KEYS, kind="stable", ignore_index=True)
    again = steps.duplicated(_KEYS)
    if again.any():
        rank, step = steps[again][_KEYS].iloc[0].tolist()
        raise InputError(
            f"step {step} of rank {rank} occurs twice", where="step_trace_time.csv", expected="one capture"
        )
    return steps


def _compared(mine: pd.DataFrame, cluster: pd.DataFrame, name: str, notes: list[str]) -> list[Finding]:
    both = mine.merge(cluster, on=_KEYS, suffixes=("", "_cluster"))
    parts = [column for column in STEP_TABLE.values() if column not in ("bubble_ns", "preparing_ns")]
    apart = np.stack([(both[part] - both[f"{part}_cluster"]).abs().to_numpy() for part in parts], axis=1)
    wrong = apart > _EQUAL_NS
    if not wrong.any():
        alone = len(mine) - len(both)
        more = f"; {alone} steps are not in it" if alone else ""
        notes.append(f"{name} and the ranks' own step tables agree on {len(both)} steps{more}")
        return []
    rows = np.flatnonzero(wrong.any(axis=1))
    shown = []
    for row in rows[:_SHOWN].tolist():
        part = parts[int(apart[row].argmax())]
        one = both.iloc[row]
        shown.append(
            f"rank {one['rank']} step {one['step']} {part.removesuffix('_ns')} "
            f"{one[part] / 1e6:.3f} ms, there {one[f'{part}_cluster'] / 1e6:.3f} ms"
        )
    ranks = tuple(sorted({int(rank) for rank in both["rank"].iloc[rows]}))
    text = f"{name} contradicts the ranks' own step tables in {len(rows)} of {len(both)} steps: {'; '.join(shown)}"
    return [Finding("cluster_table", f"{text}; the ranks' own are used", ranks)]
