"""The cores of a CPU card: ``ANCHORMATRIX_CARD_CORES``, one set of cores per card as in ``0,1;2,3``."""

from __future__ import annotations

from anchormatrix.errors import InputError

VARIABLE = "ANCHORMATRIX_CARD_CORES"
_EXPECTED = "a set of cores per card, such as 0;1 or 0-3;4,5"


def parse_cards(text: str) -> list[tuple[int, ...]]:
    """Return the cores of each card, in the order given. Raises :class:`InputError` for other text or shared cores."""
    groups = [tuple(sorted({core for item in part.split(",") for core in _cores(item)})) for part in text.split(";")]
    if len({core for group in groups for core in group}) != sum(map(len, groups)):
        raise InputError(f"{text!r}: cards share a core", where=VARIABLE, expected="disjoint core sets")
    return groups


def cores_of_ranks(text: str | None, world: int, available: set[int]) -> list[tuple[int, ...]]:
    """Return each rank's cores: the cards of the variable, or the available cores shared out when it is not set.

    Raises :class:`InputError` when there are fewer cards than ranks, or a card names a core this process may not use.
    """
    if text is None:
        cores = sorted(available)
        share = max(1, len(cores) // world)
        return [tuple(cores[(rank * share + step) % len(cores)] for step in range(share)) for rank in range(world)]
    cards = parse_cards(text)
    if len(cards) < world:
        raise InputError(f"{len(cards)} cards for {world} ranks", where=VARIABLE, expected="a card for each rank")
    missing = {core for card in cards[:world] for core in card} - available
    if missing:
        raise InputError(
            f"core {min(missing)} is not available to this process",
            where=VARIABLE,
            expected="cores of " + ",".join(map(str, sorted(available))),
        )
    return cards[:world]


def _cores(item: str) -> range:
    first, dash, last = item.strip().partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
        raise InputError(f"{item!r} is not a core or a range of cores", where=VARIABLE, expected=_EXPECTED)
    return range(int(first), int(last if dash else first) + 1)
