"""Cells measured again: the old and the new value, and what else was different."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from anchormatrix.history.query import reruns, surroundings_at, values_of
from anchormatrix.history.store import History
from anchormatrix.history.surroundings import changed_surroundings
from anchormatrix.records.rerun import Rerun, RerunCell
from anchormatrix.store.codec import line_text
from anchormatrix.store.files import write_text


def rerun_rows(history: History) -> list[Rerun]:
    """One row per cell and time it was asked for again, oldest first: all windows of the sessions pooled."""
    contracts = [
        row[0] for row in history.connection.execute("SELECT DISTINCT contract FROM sessions WHERE generation > 0")
    ]
    groups: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
    for place, _, new, before, after in reruns(history, contracts):
        groups.setdefault((place.contract, place.form, new.generation), []).append((new.started_at, before, after))
    rows = []
    for (contract, form, _), pairs in groups.items():
        old, new_ids = [before for _, before, _ in pairs], [after for _, _, after in pairs]
        was, now = values_of(history, old), values_of(history, new_ids)
        changed = changed_surroundings(surroundings_at(history, old), surroundings_at(history, new_ids))
        for tier in dict.fromkeys([*was, *now]):
            rows.append(
                Rerun(
                    when=max(started for started, _, _ in pairs),
                    contract=contract,
                    form=form,
                    tier=tier,
                    before=_cell(was.get(tier, [])),
                    after=_cell(now.get(tier, [])),
                    changed=tuple(changed),
                )
            )
    return rows


def write_reruns(history: History, results: Path) -> None:
    """Write the rows to ``reruns.jsonl`` when there are any and the file does not hold them already."""
    path = results / "reruns.jsonl"
    text = "".join(map(line_text, rerun_rows(history)))
    if text and (not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text):
        write_text(path, text)


def _cell(windows: list[tuple[tuple[float, ...], float]]) -> RerunCell:
    values = [value for found, _ in windows for value in found]
    if not values:
        return RerunCell()
    return RerunCell(step_s=median(values), dispersion_pct=max(dispersion for _, dispersion in windows))
