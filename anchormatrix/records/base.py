"""The common base of every record: frozen, and of one schema number when it is a file of its own."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

SCHEMA = 1

_FINITE = 1e18  # msgspec takes no infinity as a limit, and CSV can spell one
Positive = Annotated[float, msgspec.Meta(gt=0, lt=_FINITE)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, lt=_FINITE)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value inside a result file. Fields have the names and the order of the JSON keys.

    ``added`` are fields that files written by earlier versions lack.
    """

    added: ClassVar[tuple[str, ...]] = ()


class FileRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """A whole result file, or a whole line of a ledger: ``"schema": 1`` comes first."""
