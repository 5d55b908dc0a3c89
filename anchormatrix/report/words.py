"""Counts, lists, numbers and times in words, as every page writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anchormatrix.planning.groups import show

_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*")


def count_of(size: int) -> str:
    """A number of cards in words: ``1 card``, ``4 cards``."""
    return f"{size} card" if size == 1 else f"{size} cards"


def listed(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else ""


def capital(text: str) -> str:
    """The text with its first letter as a capital; the others stay."""
    return text[:1].upper() + text[1:]


def number(value: float | None, digits: int) -> str:
    """A number with so many digits after the point; a dash when there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def minute(when: str) -> str:
    """A time stamp to the minute; anything else as it is."""
    return _MINUTE.sub(r"\1 \2", when)


def group(ids: Iterable[int]) -> str:
    """Card ids in short: ``0–3``."""
    return show(tuple(ids))
