"""The kernel tables of all ranks as one frame: ordered by rank and start, texts as categories that all ranks share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anchormatrix.captures.names import CORES
from anchormatrix.captures.table import OUTSIDE


def kernel_frame(tables: list[tuple[int, pa.Table]]) -> pd.DataFrame:
    """Join the ranks' tables, ordered by rank and start; what need not be copied is not."""
    tables = sorted(tables, key=lambda item: item[0])
    ordered = [_by_start(table) for _, table in tables]
    counts = [table.num_rows for table in ordered]
    columns: dict[str, object] = {"rank": np.repeat(np.asarray([rank for rank, _ in tables], np.int16), counts)}
    launched = ("launched_ns",) if ordered and all("launched_ns" in table.column_names for table in ordered) else ()
    for name in ("step", "stream", "core", "name", "family", "communicator", "start_ns", "dur_ns", *launched):
        chunks = [chunk for table in ordered for chunk in table[name].chunks]
        if name in ("step", "start_ns", "dur_ns", "launched_ns"):
            columns[name] = _joined([chunk.to_numpy() for chunk in chunks])
        else:
            columns[name] = _categorical(chunks, CORES if name == "core" else None)
    columns["step"] = np.asarray(columns["step"], np.int32)
    return pd.DataFrame(columns, copy=False)


def _by_start(table: pa.Table) -> pa.Table:
    start = table["start_ns"].to_numpy()
    if len(start) < 2 or bool((start[1:] >= start[:-1]).all()):
        return table
    return table.take(pa.array(np.argsort(start, kind="stable")))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, np.int64)])


def _categorical(chunks: list[pa.Array], categories: Iterable[str] | None) -> Any:
    """Return chunks of dictionary arrays as one :class:`pandas.Categorical`."""
    if not chunks:
        return pd.Categorical([], categories=list(categories or [""]))
    if len(chunks) > 1:
        wide = [pa.DictionaryArray.from_arrays(one.indices.cast(pa.int32()), one.dictionary) for one in chunks]
        chunks = pa.chunked_array(wide).unify_dictionaries().chunks
    labels = chunks[0].dictionary
    codes = _joined([chunk.indices.to_numpy() for chunk in chunks])
    if categories is None:
        return pd.Categorical.from_codes(codes, categories=pd.Index(labels.to_pandas()))
    wanted = list(categories)
    position = np.asarray([wanted.index(label) for label in labels.to_pylist()] or [OUTSIDE], np.int8)
    return pd.Categorical.from_codes(position[codes], categories=pd.Index(wanted))
