"""What a person should know of the kernels' names: those not explained, and collectives with computing inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anchormatrix.captures.names import ASKED, FUSED, LOOKALIKE, UNRECOGNISED, meaning
from anchormatrix.captures.naming.mangled import qualified_name
from anchormatrix.captures.table import is_collective
from anchormatrix.records.finding import Finding

_SHOWN = 3


def name_findings(kernels: pd.DataFrame) -> list[Finding]:
    """Return one finding per kind: names that look like a collective and count as computing, communication of unknown
    family, collectives that also compute."""
    if kernels.empty:
        return []
    collective = is_collective(kernels)
    computing = _named(kernels, ~collective, LOOKALIKE)
    unknown = _masked(kernels, (kernels["family"] == UNRECOGNISED).to_numpy())
    fused = _named(kernels, collective, FUSED)
    return [*_finding(computing, *_LOOKALIKE), *_finding(unknown, *_UNKNOWN), *_finding(fused, *_FUSED)]


_LOOKALIKE = (
    "unexplained_name",
    "look like a collective and nothing says so: they count as computing until explained (is it communication? add the "
    "name to kernel_names.tsv)",
)
_UNKNOWN = (
    "unknown_family",
    "are communication of unknown family: neither the name nor the operator that launched them says which collective "
    "it is (capture the host's activity too)",
)
_FUSED = ("fused_collective", "are collectives with computing inside: all their time counts as communication")


def _masked(kernels: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    return kernels[mask] if mask.any() else kernels.iloc[:0]


def _named(kernels: pd.DataFrame, mask: np.ndarray, doubt: str) -> pd.DataFrame:
    """Return the rows within ``mask`` whose name has this doubt; only names with a collective's words are asked, and
    of HCCL's own, of which each call has another name, none."""
    column = kernels["name"].cat
    codes = column.codes.to_numpy()
    present = np.flatnonzero(np.bincount(codes[mask], minlength=len(column.categories)))
    labels = pa.array(column.categories.take(present), pa.string())
    asked = pc.invert(pc.match_substring_regex(labels, r"^(?i:hcom|hccl)"))
    places, labels = present[np.asarray(asked)], labels.filter(asked)
    worded = np.asarray(pc.match_substring_regex(labels, ASKED))
    doubtful = np.zeros(len(column.categories), bool)
    for place in places[worded].tolist():
        doubtful[place] = meaning(column.categories[place]).doubt == doubt
    return _masked(kernels, mask & doubtful[codes]) if doubtful.any() else kernels.iloc[:0]


def _finding(rows: pd.DataFrame, kind: str, text: str) -> Iterator[Finding]:
    if rows.empty:
        return
    names = rows["name"].astype(str).map(qualified_name).value_counts(sort=True)
    shown = ", ".join(f"{name} ({count})" for name, count in names.head(_SHOWN).items())
    more = f" and {len(names) - _SHOWN} more names" if len(names) > _SHOWN else ""
    time = rows["dur_ns"].sum() / 1e6
    ranks = tuple(int(rank) for rank in np.unique(rows["rank"].to_numpy()))
    yield Finding(kind, f"{len(rows)} kernels ({time:.3f} ms) {text}: {shown}{more}", ranks)
