"""Small captures written by hand, for the tests of the attribution room."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from anchormatrix.captures.names import CORES
from anchormatrix.captures.table import Capture, empty_windows

Row = tuple[str, str, int, int]  # name, core, start, end in µs
_TEXT = ("stream", "name", "family", "communicator")


def kernels_of(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    """Return a kernel table; times are given in µs as ``start`` and ``end``."""
    full = [
        {
            "rank": row.get("rank", 0),
            "step": row.get("step", 1),
            "stream": row.get("stream", "31" if row.get("family") else "16"),
            "core": row.get("core", "communication" if row.get("family") else "compute"),
            "name": row.get("name", row.get("family", "MatMul")),
            "family": row.get("family", ""),
            "communicator": row.get("communicator", "445" if row.get("family") else ""),
            "start_ns": int(row["start"]) * 1000,
            "dur_ns": (int(row["end"]) - int(row["start"])) * 1000,
        }
        for row in rows
    ]
    table = pd.DataFrame(full).sort_values(["rank", "start_ns"], kind="stable", ignore_index=True)
    table = table.astype({"rank": "int16", "step": "int32", "start_ns": "int64", "dur_ns": "int64"})
    table = table.astype(dict.fromkeys(_TEXT, "category"))
    table["core"] = pd.Categorical(table["core"], categories=list(CORES))
    return table


def capture_of(rows: Sequence[dict[str, object]], steps: pd.DataFrame | None = None) -> Capture:
    """Return a capture of these kernels."""
    kernels = kernels_of(rows)
    return Capture(kernels, steps, empty_windows(), "ascend", rows_read=len(kernels))


def compute(start: int, end: int, name: str = "MatMul", **other: object) -> dict[str, object]:
    """Return a compute kernel, times in µs."""
    return {"start": start, "end": end, "name": name, **other}


def collective(start: int, end: int, family: str = "alltoall", **other: object) -> dict[str, object]:
    """Return a collective, times in µs."""
    return {"start": start, "end": end, "family": family, **other}


def attention(start: int, end: int, **other: object) -> dict[str, object]:
    """Return an attention kernel, times in µs."""
    return compute(start, end, "FlashAttentionScore", **other)
