"""Cards, the links between them, and the interconnect domains those links form. Pure values, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from anchormatrix.errors import InputError

SELF = "X"
_FAST = re.compile(r"^(UB|HCCS|HCCS_SW|SIO|NV\d+|L3|NUMA)$")


def is_fast(link: str) -> bool:
    """Whether a link belongs to the fast fabric: UB, HCCS, HCCS_SW, SIO, NVLink, or one core complex of a CPU host."""
    return bool(_FAST.match(link))


@dataclass(frozen=True)
class Topology:
    """The live link matrix of a host.

    ``cards`` are the ids a person and the vendor's visible-devices variable use, ascending; ``links[i][j]`` is the
    link name between ``cards[i]`` and ``cards[j]`` (``X`` on the diagonal).
    """

    cards: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]

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

    @cached_property
    def _index(self) -> dict[int, int]:
        return {card: i for i, card in enumerate(self.cards)}

    def link(self, a: int, b: int) -> str:
        """Return the link name between two cards."""
        return self.links[self._index[a]][self._index[b]]

    def group_links(self, cards: Sequence[int]) -> tuple[str, ...]:
        """Return the sorted distinct link names inside a group of cards."""
        return tuple(sorted({self.link(a, b) for a, b in combinations(cards, 2)}))

    def all_to_all(self, cards: Iterable[int]) -> bool:
        """Whether every two of the cards are joined by a fast link."""
        return all(is_fast(self.link(a, b)) for a, b in combinations(cards, 2))

    @cached_property
    def domains(self) -> tuple[tuple[int, ...], ...]:
        """The interconnect domains, each ascending, ordered by first card.

        Being in one domain is transitive only where the links say all-to-all. Cards connected by fast links that are
        not all-to-all (a ring, a broken link) are split greedily, lowest card first, into all-to-all blocks.
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


@dataclass(frozen=True)
class CardProcess:
    """A process that the vendor's tool reports on a card. ``name`` may be empty; ``memory_mb`` is device memory."""

    pid: int
    name: str
    memory_mb: int


@dataclass(frozen=True)
class Card:
    """What the vendor's tool says of one card. ``id`` is the id used in the topology and for visible devices."""

    id: int
    npu: int
    chip: int
    name: str
    health: str
    hbm_used_mb: int
    hbm_total_mb: int
    processes: tuple[CardProcess, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class HostState:
    """One reading of a host: topology, cards, and the versions that belong to a contract (driver, toolkit, tool)."""

    topology: Topology
    cards: tuple[Card, ...]
    versions: tuple[tuple[str, str], ...] = ()

    def card(self, card_id: int) -> Card:
        """Return the reading of one card; raises :class:`InputError` when the tool did not list it."""
        for card in self.cards:
            if card.id == card_id:
                return card
        raise InputError(
            f"card {card_id} is in the topology but not in the health listing", expected="both to list the same cards"
        )


@dataclass(frozen=True)
class Stack:
    """The software that belongs to a contract. ``driver`` comes from the vendor's tool."""

    driver: str
    toolkit: str
    framework: str
    framework_version: str


@dataclass(frozen=True)
class Live:
    """Cards, links and software of a host, read together."""

    state: HostState
    stack: Stack
