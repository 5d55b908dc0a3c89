"""What a person should know of the kernels' names: those not explained, and collectives with computing inside."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anchormatrix.captures.names import ASKED, FUSED, HOST, LOOKALIKE, UNRECOGNISED, meaning
from anchormatrix.captures.naming.mangled import qualified_name
from anchormatrix.captures.table import is_collective, is_core
from anchormatrix.records.finding import Finding

_SHOWN = 3


def name_findings(kernels: pd.DataFrame) -> list[Finding]:
    """Return one finding per kind: names that look like a collective and count as computing, communication of unknown
    family, collectives that also compute."""
    if kernels.empty:
        return []
    collective = is_collective(kernels)
    # The host's own time, as that of the start of a collective, counts as neither.
    computing = _doubtful(kernels, ~collective & ~is_core(kernels, HOST))
    communicating = _doubtful(kernels, collective)
    unknown = _masked(kernels, (kernels["family"] == UNRECOGNISED).to_numpy())
    return [
        *_finding(computing[LOOKALIKE], *_LOOKALIKE),
        *_finding(unknown, *_UNKNOWN),
        *_finding(communicating[FUSED], *_FUSED),
        *_finding(computing[FUSED], *_FUSED_COMPUTING),
    ]


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
_FUSED_COMPUTING = (
    "fused_computing",
    "are computing with a collective inside: all their time counts as computing",
)
_FUSED = ("fused_collective", "are collectives with computing inside: all their time counts as communication")


def _masked(kernels: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    return kernels[mask] if mask.any() else kernels.iloc[:0]


def _doubtful(kernels: pd.DataFrame, mask: np.ndarray) -> dict[str, pd.DataFrame]:
    """Return the rows within ``mask`` by the doubt that their name leaves.

    Only names with a collective's words are asked, and of HCCL's own, of which each call has another name, none.
    """
    column = kernels["name"].cat
    codes = column.codes.to_numpy()
    present = np.flatnonzero(np.bincount(codes[mask], minlength=len(column.categories)))
    labels = pa.array(column.categories.take(present), pa.string())
    asked = pc.invert(pc.match_substring_regex(labels, r"^(?i:hcom|hccl)"))
    places, labels = present[np.asarray(asked)], labels.filter(asked)
    worded = places[np.asarray(pc.match_substring_regex(labels, ASKED))].tolist()
    doubts = {place: meaning(column.categories[place]).doubt for place in worded}
    found = {}
    for doubt in (LOOKALIKE, FUSED):
        wanted = np.zeros(len(column.categories), bool)
        wanted[[place for place, one in doubts.items() if one == doubt]] = True
        found[doubt] = _masked(kernels, mask & wanted[codes]) if wanted.any() else kernels.iloc[:0]
    return found


def _finding(rows: pd.DataFrame, kind: str, text: str) -> Iterator[Finding]:
    if rows.empty:
        return
    names = rows["name"].astype(str).map(qualified_name).value_counts(sort=True)
    shown = ", ".join(f"{name} ({count})" for name, count in names.head(_SHOWN).items())
    more = f" and {len(names) - _SHOWN} more names" if len(names) > _SHOWN else ""
    time = rows["dur_ns"].sum() / 1e6
    ranks = tuple(int(rank) for rank in np.unique(rows["rank"].to_numpy()))
    yield Finding(kind, f"{len(rows)} kernels ({time:.3f} ms) {text}: {shown}{more}", ranks)
