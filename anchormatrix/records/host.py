"""Readings of a host: its cards, the links between them, and the interconnect domains those links form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Annotated

import msgspec

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord, Record

SELF = "X"
NOT_STATED = "not stated"
_FAST = re.compile(r"^(UB|HCCS|HCCS_SW|SIO|NV\d+|L3|NUMA)$")

Count = Annotated[int, msgspec.Meta(ge=0)]


def is_fast(link: str) -> bool:
    """Whether a link belongs to the fast fabric: UB, HCCS, HCCS_SW, SIO, NVLink, or one core complex of a CPU host."""
    return bool(_FAST.match(link))


def mb(value: int | None) -> str:
    """An amount of memory in words, which the vendor's tool may not tell."""
    return "memory not told" if value is None else f"{value} MB"


class Topology(FileRecord, frozen=True):
    """``topology.json``: the live link matrix of a host.

    ``cards`` are the ids a person and the vendor's visible-devices variable use, ascending; ``links[i][j]`` is the
    link name between ``cards[i]`` and ``cards[j]`` (``X`` on the diagonal). ``domains`` are the interconnect domains,
    each ascending, ordered by first card; they follow from the links, whatever a file says. Raises
    :class:`InputError` for a matrix that contradicts itself.
    """

    cards: tuple[Count, ...]
    links: tuple[tuple[str, ...], ...]
    domains: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        size = len(self.cards)
        if not size:
            raise InputError("the topology names no card", expected="at least one card")
        if list(self.cards) != sorted(set(self.cards)):
            raise InputError(f"card ids {list(self.cards)} are not ascending and unique", where="topology")
        if len(self.links) != size or any(len(row) != size for row in self.links):
            raise InputError(f"the link matrix is not {size} × {size}", where="topology")
        for i, j in combinations(range(size), 2):
            if self.links[i][j] != self.links[j][i]:
                there, back = self.links[i][j], self.links[j][i]
                raise InputError(
                    f"link {self.cards[i]}–{self.cards[j]} is {there} one way and {back} the other", where="topology"
                )
        msgspec.structs.force_setattr(self, "domains", self._split())

    def link(self, a: int, b: int) -> str:
        """Return the link name between two cards."""
        return self.links[self.cards.index(a)][self.cards.index(b)]

    def group_links(self, cards: Sequence[int]) -> tuple[str, ...]:
        """Return the sorted distinct link names inside a group of cards."""
        return tuple(sorted({self.link(a, b) for a, b in combinations(cards, 2)}))

    def all_to_all(self, cards: Iterable[int]) -> bool:
        """Whether every two of the cards are joined by a fast link."""
        return all(is_fast(self.link(a, b)) for a, b in combinations(cards, 2))

    def _split(self) -> tuple[tuple[int, ...], ...]:
        """Being in one domain is transitive only where the links say all-to-all.

        Cards connected by fast links that are not all-to-all (a ring, a broken link) are split greedily, lowest card
        first, into all-to-all blocks.
        """
        left = list(self.cards)
        found: list[tuple[int, ...]] = []
        while left:
            block: list[int] = [left[0]]
            for card in left[1:]:
                if all(is_fast(self.link(card, member)) for member in block):
                    block.append(card)
            found.append(tuple(block))
            left = [card for card in left if card not in block]
        return tuple(found)

    def domain_of(self, card: int) -> tuple[int, ...]:
        """Return the domain a card belongs to."""
        return next(domain for domain in self.domains if card in domain)

    def same_domain(self, a: int, b: int) -> bool:
        """Whether two cards share an interconnect domain."""
        return b in self.domain_of(a)


class CardProcess(Record, frozen=True):
    """A process that the vendor's tool reports on a card. ``name`` may be empty; ``memory_mb`` is device memory."""

    pid: Count
    name: str
    memory_mb: Count | None


class CardState(StrEnum):
    """How much is known of a card: whether it may be used at all, and whether a fact of it is missing."""

    KNOWN = "known"
    PARTLY = "partly known"
    UNUSABLE = "unusable"


_FIT = ("OK", "WARNING")
_UNFIT = ("ALARM", "CRITICAL", "FAULT")


class Card(Record, frozen=True, kw_only=True):
    """What the vendor's tool says of one card. ``id`` is the id used in the topology and for visible devices.

    ``health`` is the vendor's own word. Every process that a probe sees is somebody else's. Memory that the tool does
    not tell is ``None``. ``reason`` goes on where "card 3 …" starts: what is not known, or why it cannot be used.
    """

    id: Count
    npu: Count
    chip: Count
    name: str
    health: str
    hbm_used_mb: Count | None
    hbm_total_mb: Count | None
    temperature_c: float | None = None
    power_w: float | None = None
    processes: tuple[CardProcess, ...] = ()
    state: CardState = CardState.KNOWN
    reason: str = ""

    def __post_init__(self) -> None:
        word = self.health.upper()
        if self.state is CardState.UNUSABLE or word in _FIT:
            return
        known = word in _UNFIT
        reason = f"says {self.health}" if known else f"says {self.health!r}, which is not a known state of health"
        msgspec.structs.force_setattr(self, "state", CardState.UNUSABLE)
        msgspec.structs.force_setattr(self, "reason", reason)


class Stack(Record, frozen=True):
    """The software that belongs to a contract. ``driver`` comes from the vendor's tool."""

    driver: str = NOT_STATED
    toolkit: str = NOT_STATED
    framework: str = NOT_STATED
    framework_version: str = NOT_STATED


class HostHealth(FileRecord, frozen=True, kw_only=True):
    """``health.json``: health, memory and processes of every card, and the software versions read with them.

    ``notes`` are what the vendor's tool said beside its tables.
    """

    cards: tuple[Card, ...]
    versions: Stack = Stack()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [card.id for card in self.cards]
        if len(set(ids)) != len(ids):
            raise ValueError(f"card ids {ids} are not unique")

    def memory_gb(self, cards: Sequence[int]) -> float | None:
        """The memory of the smallest of some cards in GB (10⁹ bytes); None when one of them is not known."""
        known = [card.hbm_total_mb for card in self.cards if card.id in cards and card.hbm_total_mb]
        return min(known) * 2**20 / 1e9 if len(known) == len(cards) else None


@dataclass(frozen=True)
class HostState:
    """Cards and links of a host at one moment, the vendor's versions (``driver`` and ``tool``) and further words."""

    topology: Topology
    cards: tuple[Card, ...]
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def card(self, card_id: int) -> Card:
        """Return the reading of one card; raises :class:`InputError` when the tool did not list it."""
        for card in self.cards:
            if card.id == card_id:
                return card
        raise InputError(
            f"card {card_id} is in the topology but not in the health listing", expected="both to list the same cards"
        )


@dataclass(frozen=True)
class HostProbe:
    """Cards, links and software of a host, read together."""

    state: HostState
    stack: Stack

    @property
    def health(self) -> HostHealth:
        """The reading as ``health.json`` holds it."""
        return HostHealth(cards=self.state.cards, versions=self.stack, notes=self.state.notes)
