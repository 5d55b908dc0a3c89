"""The history in lines of text."""

from __future__ import annotations

from collections import Counter

from anchormatrix.history.nights import last_nights
from anchormatrix.history.query import nights_before, sessions_of_night
from anchormatrix.history.store import History


def night_lines(history: History, count: int) -> list[str]:
    """The last nights, newest first: contracts, sessions by status, and how the sweep ended."""
    sweeps = {night.night: night for night in last_nights(history, count)}
    seen = sorted({*nights_before(history, "9999", count), *sweeps}, reverse=True)[:count]
    lines = []
    for night in seen:
        sessions = sessions_of_night(history, night).values()
        statuses = Counter(session.status.replace("_", " ") for session in sessions)
        told = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "no session"
        contracts = ", ".join(sorted({session.place.contract for session in sessions})) or "no contract"
        sweep = sweeps.get(night)
        ended = "single runs" if sweep is None else sweep.outcome or "half-finished"
        lines.append(f"{night}  {ended:<18}  {told}  ({contracts})")
    return lines or ["the history is empty"]
