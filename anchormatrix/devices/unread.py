"""Cards that a tool could not read: each is kept, named and left out, so that it does not refuse the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anchormatrix.errors import InputError
from anchormatrix.records.host import NOT_STATED, Card, CardState, Topology

LOST = "Lost"
_RESET = "reset or reboot the host, and look at the driver's log"
# what to do about a card of which two rows of one output claim to be
AGAIN = "run the tool again and give one output as it comes; when the rows are still two, reset the card or its driver"


def unread_card(card: int, reason: str, *, npu: int | None = None, chip: int = 0, name: str = NOT_STATED) -> Card:
    """A card of which nothing can be used; ``reason`` goes on where "card 3 …" starts."""
    return Card(
        id=card,
        npu=card if npu is None else npu,
        chip=chip,
        name=name,
        health=LOST,
        hbm_used_mb=None,
        hbm_total_mb=None,
        state=CardState.UNUSABLE,
        reason=reason,
    )


def partly(card: Card, reason: str) -> Card:
    """A card of which a fact is missing, by a further reason; itself without one, or when it cannot be used anyway."""
    if not reason or card.state is CardState.UNUSABLE:
        return card
    return msgspec.structs.replace(card, state=CardState.PARTLY, reason="; ".join(filter(None, (card.reason, reason))))


def first_free(taken: Iterable[int]) -> int:
    """The lowest id that is not taken: where the listing has a gap, or after its end."""
    ids = set(taken)
    return next(card for card in range(len(ids) + 1) if card not in ids)


def joined(cards: Sequence[Card], topology: Topology, listing: str, matrix: str) -> tuple[Card, ...]:
    """The cards of both outputs, ascending; one that only one of them names is unusable.

    Raises :class:`InputError` when they have no card in common, or when every card is lost.
    """
    listed = {card.id: card for card in cards}
    if not set(listed) & set(topology.cards):
        raise InputError(
            f"`{listing}` lists cards {sorted(listed)} but `{matrix}` {list(topology.cards)}",
            expected="both to list the same cards",
            todo="a card may have dropped off the bus: look at both outputs on the host",
        )
    for card in set(listed) - set(topology.cards):
        known = listed[card]
        if known.state is not CardState.UNUSABLE:
            reason = f"is not in the link matrix of `{matrix}`"
            listed[card] = unread_card(card, reason, npu=known.npu, chip=known.chip, name=known.name)
    for card in set(topology.cards) - set(listed):
        listed[card] = unread_card(card, f"is in the link matrix, but `{listing}` does not list it")
    found = tuple(card for _, card in sorted(listed.items()))
    refuse_all_lost(found, listing)
    return found


def refuse_all_lost(cards: Sequence[Card], listing: str) -> None:
    """Raise :class:`InputError` when no card at all could be read."""
    if cards and all(card.health == LOST for card in cards):
        said = "; ".join(f"card {card.id} {card.reason.removesuffix(f': {AGAIN}')}" for card in cards[:4])
        more = f" … and {len(cards) - 4} more" if len(cards) > 4 else ""
        raise InputError(
            f"no card of {len(cards)} can be used: {said}{more}",
            where=f"output of `{listing}`",
            expected="at least one card that can be read",
            todo=AGAIN if any(AGAIN in card.reason for card in cards) else _RESET,
        )
