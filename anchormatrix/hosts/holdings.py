"""The holders of a host's cards, for anybody to look at; ``host.lease`` takes them.

One lock file per card lies in ``host.lease_dir`` on the host. The lock is the kernel's (``flock``): it lives as long as
what was started under it, and ends with it, however it ends. What the holder wrote into the file is for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchormatrix.errors import shown
from anchormatrix.hosts.base import Host

UNKNOWN = "?"
_MOST_PROBLEMS = 20


@dataclass(frozen=True)
class Holding:
    """One card that is in use or suspect, or whose lock file is not as it must be; all texts are escaped.

    ``origin`` is the machine that asked; ``since`` is that machine's wall clock. ``locker`` is whom the host's kernel
    names as holding the lock, where that is not who wrote the other words. ``suspect`` tells what happened on the card:
    a job on it had to be killed and no smoke has passed since. ``problem`` is what is wrong with the lock file.
    """

    card: int
    held: bool
    user: str = UNKNOWN
    pid: str = UNKNOWN
    origin: str = UNKNOWN
    since: str = UNKNOWN
    what: str = UNKNOWN
    suspect: str = ""
    locker: str = ""
    problem: str = ""


def holdings(host: Host) -> tuple[Holding, ...]:
    """Who holds which card of a host now, ascending by card. Raises :class:`HostError`."""
    return tuple(_holding(values) for values in host.holders())


def problems(found: Sequence[Holding]) -> list[str]:
    """What is wrong with lock files, a line each; the others of too many are counted."""
    lines = [one.problem for one in found if one.problem]
    return lines[:_MOST_PROBLEMS] + [f"and {len(lines) - _MOST_PROBLEMS} more"] * (len(lines) > _MOST_PROBLEMS)


def _holding(values: Mapping[str, object]) -> Holding:
    keys = {"user": "user", "pid": "pid", "origin": "from", "since": "since", "what": "what"}
    said = {name: shown(str(values.get(key, UNKNOWN)))[:120] for name, key in keys.items()}
    more = {key: shown(str(values.get(key, "")))[:400] for key in ("suspect", "locker", "problem")}
    return Holding(card=int(str(values["card"])), held=bool(values["held"]), **said, **more)
