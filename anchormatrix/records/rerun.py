"""The ledger of reruns: cells measured again, the old and the new value, and what else was different."""

from __future__ import annotations

from anchormatrix.records.base import FileRecord, Record


class RerunCell(Record, frozen=True, omit_defaults=True):
    """All windows of a cell pooled: median step in seconds, dispersion of the worst window; empty without numbers."""

    step_s: float | None = None
    dispersion_pct: float | None = None


class Rerun(FileRecord, frozen=True):
    """One cell that was asked for again, as one line of ``reruns.jsonl``; ``changed`` are circumstances in words."""

    when: str
    contract: str
    form: str
    tier: str
    before: RerunCell
    after: RerunCell
    changed: tuple[str, ...]
