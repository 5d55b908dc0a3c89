"""The holders of a host's cards, for anybody to look at; ``host.lease`` takes them.

One lock file per card lies in ``host.lease_dir`` on the host. The lock is the kernel's (``flock``): it lives as long as
what was started under it, and ends with it, however it ends. What the holder wrote into the file is for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anchormatrix.hosts.base import Host

UNKNOWN = "?"


@dataclass(frozen=True)
class Holding:
    """One card that is in use or suspect.

    ``origin`` is the machine that asked; ``since`` is that machine's wall clock. ``suspect`` tells what happened on
    the card: a job on it had to be killed and no smoke has passed since.
    """

    card: int
    held: bool
    user: str = UNKNOWN
    pid: str = UNKNOWN
    origin: str = UNKNOWN
    since: str = UNKNOWN
    what: str = UNKNOWN
    suspect: str = ""


def holdings(host: Host) -> tuple[Holding, ...]:
    """Who holds which card of a host now, ascending by card. Raises :class:`HostError`."""
    return tuple(_holding(values) for values in host.holders())


def _holding(values: Mapping[str, object]) -> Holding:
    keys = {"user": "user", "pid": "pid", "origin": "from", "since": "since", "what": "what"}
    said = {name: _printable(values.get(key, UNKNOWN)) for name, key in keys.items()}
    return Holding(
        card=int(str(values["card"])), held=bool(values["held"]), suspect=_printable(values.get("suspect", "")), **said
    )


def _printable(value: object) -> str:
    """Others wrote this: one line of printable text, not too long."""
    return "".join(char if char.isprintable() else " " for char in str(value))[:120]
