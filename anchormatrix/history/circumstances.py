"""What was true round a session: taken from its file, kept in the history, compared between sessions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

_WARMER_C = 5.0
_LOAD_FACTOR, _LOAD_ROOM = 2.0, 1.0


@dataclass(frozen=True)
class Circumstances:
    """What was true round a session. ``health`` is ``OK`` or names the cards that say otherwise.

    ``temperature_c`` is the hottest card after the session; ``load`` the host's one-minute load average; ``tenants``
    how many processes were on the cards before it; ``versions`` whatever versions were read, by name.
    """

    health: str
    temperature_c: float | None
    tenants: int
    load: float | None
    versions: Mapping[str, str]


def circumstances_from(values: Any) -> Circumstances:
    """Take what the history keeps from the ``circumstances`` of a ``session.json``; what is missing stays unknown."""
    given = values if isinstance(values, Mapping) else {}
    before, after = _cards(given.get("before")), _cards(given.get("after"))
    sick = sorted({f"card {card.get('id')} {card.get('health')}" for card in (*before, *after) if not _fit(card)})
    hot = [t for card in after or before if (t := number(card.get("temperature_c"))) is not None]
    versions = given.get("versions")
    return Circumstances(
        health=", ".join(sick) or ("OK" if before or after else ""),
        temperature_c=max(hot, default=None),
        tenants=sum(len(card.get("processes") or ()) for card in before),
        load=number(given.get("load")),
        versions={str(k): str(v) for k, v in versions.items()} if isinstance(versions, Mapping) else {},
    )


def changed_circumstances(before: Iterable[Circumstances], after: Iterable[Circumstances]) -> tuple[str, ...]:
    """What is different round the later sessions, as phrases; empty when nothing recorded is."""
    old, new = list(before), list(after)
    if not old or not new:
        return ()
    found = []
    for name in sorted({key for item in new for key in item.versions}):
        was, now = ({str(item.versions.get(name, "not stated")) for item in side} for side in (old, new))
        if not was & now:
            found.append(f"{name} {_joined(was)} → {_joined(now)}")
    sick = {item.health for item in new} - {item.health for item in old}
    found += [f"health: {text}" for text in sorted(sick) if text]
    found += _numbers(old, new)
    tenants = max(item.tenants for item in new)
    if tenants and not any(item.tenants for item in old):
        found.append(f"{tenants} foreign processes on the cards, none before")
    return tuple(found)


def _numbers(old: Sequence[Circumstances], new: Sequence[Circumstances]) -> list[str]:
    found = []
    was, now = (_middle([item.temperature_c for item in side]) for side in (old, new))
    if was is not None and now is not None and abs(now - was) > _WARMER_C:
        found.append(f"hottest card {was:.0f} °C → {now:.0f} °C")
    was, now = (_middle([item.load for item in side]) for side in (old, new))
    if was is not None and now is not None:
        low, high = sorted((was, now))
        if high > _LOAD_FACTOR * low + _LOAD_ROOM:
            found.append(f"host load {was:.1f} → {now:.1f}")
    return found


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def number(value: Any) -> float | None:
    """A finite number as it stands in a file from outside, or nothing."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _cards(reading: Any) -> list[Mapping[str, Any]]:
    cards = reading.get("cards") if isinstance(reading, Mapping) else None
    return [card for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []


def _fit(card: Mapping[str, Any]) -> bool:
    return str(card.get("health", "OK")).upper() == "OK"


def _joined(texts: Iterable[str]) -> str:
    return " or ".join(sorted(texts))
