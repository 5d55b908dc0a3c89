"""The errors of a host: what a person is told when a command fails there, or a card is not free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchormatrix.errors import HostError, LeaseError, shown
from anchormatrix.hosts import processes
from anchormatrix.hosts.base import Completed


def missing_program(program: str, where: str, path: str) -> HostError:
    """The error for a program that is not there; names the PATH that was searched, unless a path was given."""
    if "/" in program:
        return HostError(
            f"`{program}` was not found", where=where, todo="install it there, or correct its path in the configuration"
        )
    shown = path if len(path) <= 300 else f"{path[:299]}…"
    return HostError(
        f"`{program}` was not found",
        where=where,
        expected=f"it on PATH ({shown})",
        todo="install it there, or add its folder to host.path",
    )


def hangs(argv: Sequence[str], timeout_s: float, where: str) -> HostError:
    """The error for a command that does not come back."""
    return HostError(
        f"`{' '.join(argv)}` hangs: no end after {timeout_s:g} s",
        where=where,
        todo="run it on the host by hand; a driver that hangs needs its administrator (host.command_timeout_s)",
    )


def talks_too_much(argv: Sequence[str], where: str) -> HostError:
    """A command that prints without end was ended."""
    return HostError(
        f"`{' '.join(argv)[:200]}` printed more than {processes.MOST_OUTPUT >> 20} MiB and was ended",
        where=where,
        todo="try it by hand there",
    )


def login_prints(printed: bytes, where: str) -> HostError:
    """The error for a login that printed something, and under which no agent answered."""
    lines = [line.strip() for line in printed[:4096].decode("utf-8", "replace").splitlines() if line.strip()]
    said = " / ".join(shown(line)[:120] for line in lines[:3]) or "nothing but empty lines"
    size = f", {len(printed) >> 20} MiB of it" if len(printed) >> 20 else ""
    return HostError(
        f"the login there prints «{said}»{size}, and no agent answers after it",
        where=where,
        todo="try `ssh HOST true`, which must print nothing: put `case $- in *i*) ;; *) return;; esac` first in the "
        'start-up file that prints; a forced command must end in `exec sh -c "$SSH_ORIGINAL_COMMAND"`',
    )


def failed(done: Completed, where: str) -> HostError:
    """The error for a command that failed, with the last line it said."""
    said = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    last = (done.stderr.strip().splitlines() or said or ["nothing was printed"])[-1]
    return HostError(f"`{' '.join(done.argv)}` failed with exit code {done.returncode}: {last[:300]}", where=where)


def held(card: int, holder: Mapping[str, Any], where: str, waited_s: float) -> LeaseError:
    """The error for a card that somebody else holds."""
    waited = f" after waiting {waited_s:g} s" if waited_s else ""
    return LeaseError(
        f"card {card} is held by {holder_text(holder)}{waited}",
        where=where,
        todo="wait for them, or look with scripts/leases.py",
    )


def holder_text(holder: Mapping[str, Any]) -> str:
    """A holder in words: ``alice (pid 4242 on node7) since 2026-01-31T04:00:00+01:00: c4-0123456789 tp1-usp4``.

    Anybody may have written them. Where the kernel names somebody else as the one who holds the lock, that comes first.
    """
    said = {key: shown(str(value))[:120] for key, value in holder.items()}
    locker = said.pop("locker", "")
    who = f"{said.get('user', '?')} (pid {said.get('pid', '?')} on {said.get('from', '?')})"
    words = f"{who} since {said.get('since', '?')}: {said.get('what', 'no purpose given')}" if said else ""
    if locker:
        return f"{locker}; the lock file says {words}" if words else f"{locker}, who has not said what for"
    return words or "somebody who has not said who they are"
