"""Exclusive use of cards on a host: taken through the host, and looked at by anybody.

One lock file per card lies in ``host.lease_dir`` on the host. The lock is the kernel's (``flock``): it lives as long as
anything that was started under it, and ends with it, however it ends. What the holder wrote into the file is for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from anchormatrix.hosts.base import Host, Lease

UNKNOWN = "?"


@dataclass(frozen=True)
class Holding:
    """One card that is in use. ``origin`` is the machine that asked; ``since`` is that machine's wall clock."""

    card: int
    user: str = UNKNOWN
    pid: str = UNKNOWN
    origin: str = UNKNOWN
    since: str = UNKNOWN
    what: str = UNKNOWN


def lease_cards(host: Host, cards: Iterable[int], *, what: str, wait_s: float) -> Lease:
    """Take cards for exclusive use, all or none; ``what`` tells others what for.

    Raises :class:`LeaseError` naming who holds one of them after ``wait_s`` seconds.
    """
    return host.lease(sorted(cards), holder={"what": what}, wait_s=wait_s)


def holdings(host: Host) -> tuple[Holding, ...]:
    """Who holds which card of a host now, ascending by card. Raises :class:`HostError`."""
    return tuple(_holding(values) for values in host.holders())


def holdings_text(found: Iterable[Holding]) -> str:
    """The holdings as an aligned table with a header, one line per card; a sentence when there are none."""
    names = [field.name for field in fields(Holding)]
    rows = [[str(getattr(holding, name)) for name in names] for holding in found]
    if not rows:
        return "no card is leased"
    table = [["from" if name == "origin" else name for name in names], *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def _holding(values: Mapping[str, object]) -> Holding:
    said = {
        name: _printable(values.get("from" if name == "origin" else name, UNKNOWN))
        for name in ("user", "pid", "origin", "since", "what")
    }
    return Holding(card=int(str(values["card"])), **said)


def _printable(value: object) -> str:
    """Others wrote this: one line of printable text, not too long."""
    return "".join(char if char.isprintable() else " " for char in str(value))[:120]
