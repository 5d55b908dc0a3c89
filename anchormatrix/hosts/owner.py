"""The owner of a results folder and of a run's commands: one run at a time, and no command outlives its run."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.processes import entry

OWNER = "ANCHORMATRIX_OWNER"
_LOOK_S = 0.25
_HELD: list[IO[str]] = []


def hold_results(results: Path) -> None:
    """Hold the results folder until this process ends; raises :class:`AnchorMatrixError` when another run holds it.

    The kernel releases the lock when its holder ends in any way, so a killed run leaves nothing to unlock.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        stream = (results / ".lock").open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise AnchorMatrixError(
            f"cannot be written ({error.strerror})", where=f"{results}/", todo="see its permissions and the free space"
        ) from None
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.seek(0)
        holder = stream.read().strip() or "another run"
        stream.close()
        raise AnchorMatrixError(
            f"in use by {holder}", where=f"{results}/", todo="wait until it ends, or run in another clone"
        ) from None
    _HELD.append(stream)
    try:
        stream.truncate(0)
        stream.write(f"pid {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n")
        stream.flush()
    except OSError as error:
        raise AnchorMatrixError(
            f"cannot be written ({error.strerror})", where=f"{results}/.lock", todo="see the free space"
        ) from None


def name_owner() -> None:
    """Tell every command started from here on whom it belongs to: this process."""
    os.environ[OWNER] = _word(os.getpid())


def follow_owner() -> None:
    """Send SIGTERM to this process as soon as the owner named in its environment is gone, however it ended.

    A run that is killed cannot stop its commands, and its shell may keep them from noticing; a command that went on
    would hold cards and measure beside the run that follows. Does nothing where no owner is named.
    """
    owner = os.environ.get(OWNER, "")
    if owner:
        threading.Thread(target=_follow, args=(owner,), daemon=True, name="owner").start()


def answer_sigterm_aside() -> None:
    """Let the handler of SIGTERM that is installed now run in a thread of its own from here on.

    Snakemake's takes a lock which the thread that handles signals may hold just then: it would wait for itself for
    ever. Call it from the main thread once that handler is installed.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if callable(handler):
        answer = handler
        signal.signal(signal.SIGTERM, lambda *facts: threading.Thread(target=answer, args=facts).start())


def _follow(owner: str) -> None:
    pid = int(owner.partition(":")[0])
    while _word(pid) == owner:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _word(pid: int) -> str:
    """A process that lives, as one word that no later process of the same id has."""
    found = entry(pid)
    return f"{pid}:{found.start}" if found and found.state not in "ZX" else ""
