"""A finding: what a capture or an analysis has to say beyond its numbers."""

from __future__ import annotations

from anchormatrix.records.base import Record


class Finding(Record, frozen=True):
    """One thing a person should know: a ``kind`` to match on, a sentence to read, the ranks it was seen on."""

    kind: str
    text: str
    ranks: tuple[int, ...] = ()
