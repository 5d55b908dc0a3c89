"""The bandwidth file: how long the collectives of a card group take, from small messages to large ones."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from anchormatrix.records.base import FileRecord, Positive, Record


class CollectiveKind(enum.StrEnum):
    """A collective, as the field calls it."""

    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    SEND_RECV = "send_recv"


class SweepPoint(Record, frozen=True):
    """One measured point. ``bytes`` is what one rank hands to the call.

    That is the local tensor of all-to-all and all-reduce, the own shard of all-gather, the block of send/receive.
    ``concurrency`` counts communicators over the same cards active at once; ``gb_s`` is wire bytes of one rank ÷ time.
    """

    collective: CollectiveKind
    link_class: str
    ranks: Annotated[int, msgspec.Meta(ge=2)]
    bytes: Annotated[int, msgspec.Meta(ge=1)]
    concurrency: Annotated[int, msgspec.Meta(ge=1)]
    time_us: Positive
    gb_s: Positive


class SizeSweep(FileRecord, frozen=True):
    """The size sweep of one contract's cards, as ``bandwidth/<contract>.json`` holds it.

    ``source`` names the tool, and what was left out with its reason.
    """

    contract: str
    points: tuple[SweepPoint, ...]
    source: str
