"""The mark on suspect cards: they must pass a smoke before anything runs on them."""

from __future__ import annotations

from anchormatrix.records.base import FileRecord


class Suspicion(FileRecord, frozen=True):
    """Why cards must pass a smoke before anything runs on them, as ``suspect.json`` of a contract holds it.

    ``cards`` are those not cleared since, ``when`` is UTC in ISO 8601.
    """

    contract: str
    cards: tuple[int, ...]
    what: str
    when: str
