"""The circumstances of a session as the history keeps them, and how they differ between sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from anchormatrix.records.session import Session

_WARMER_C = 5.0
_LOAD_FACTOR, _LOAD_ROOM = 2.0, 1.0


@dataclass(frozen=True)
class Surroundings:
    """What is kept of what was true round a session. ``health`` is ``OK`` or names the cards that say otherwise.

    ``temperature_c`` is the hottest card after the session; ``load`` the host's one-minute load average; ``tenants``
    how many processes were on the cards before it; ``versions`` whatever versions were read, by name.
    """

    health: str
    temperature_c: float | None
    tenants: int
    load: float | None
    versions: Mapping[str, str]


def surroundings_of(session: Session) -> Surroundings:
    """What the history keeps of a session's circumstances; without any, everything is unknown."""
    given = session.circumstances
    if given is None:
        return Surroundings("", None, 0, None, {})
    before, after = given.before.cards, given.after.cards
    sick = sorted({f"card {card.id} {card.health}" for card in (*before, *after) if card.health.upper() != "OK"})
    hot = [card.temperature_c for card in after or before if card.temperature_c is not None]
    return Surroundings(
        health=", ".join(sick) or ("OK" if before or after else ""),
        temperature_c=max(hot, default=None),
        tenants=sum(len(card.processes) for card in before),
        load=given.load,
        versions=given.versions,
    )


def changed_surroundings(before: Iterable[Surroundings], after: Iterable[Surroundings]) -> tuple[str, ...]:
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


def _numbers(old: Sequence[Surroundings], new: Sequence[Surroundings]) -> list[str]:
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


def _joined(texts: Iterable[str]) -> str:
    return " or ".join(sorted(texts))
