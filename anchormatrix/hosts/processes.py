"""Processes of a host: who lives, what belongs to a started server, and how that is stopped.

Standard library only, Python 3.8 or later: the supervision agent brings this file to hosts that know nothing of this
project.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKEN = "ANCHORMATRIX_RUN"
MOST_OUTPUT = 64 << 20  # bytes that a command may print
_KILL_WAIT_S = 5.0
_HELPER_WAIT_S = 2.0
_ORPHAN_WAIT_S = 0.5
_PRCTL = ctypes.CDLL(None).prctl
_PARENT_DEATH, _SUBREAPER = 1, 36


def environment(env: dict[str, str], folders: Sequence[str]) -> dict[str, str]:
    """The environment of a command: this one's with ``env`` over it, and ``folders`` first on PATH."""
    complete = {**os.environ, **env}
    named = [folder for folder in folders if os.pathsep not in folder]
    complete["PATH"] = os.pathsep.join([*named, complete.get("PATH", os.defpath)])
    return complete


def found(argv: Sequence[str], folders: Sequence[str]) -> list[str]:
    """A command line whose program may be in a folder that PATH cannot name, since its name holds the separator."""
    for folder in folders:
        program = os.path.join(folder, argv[0])  # noqa: PTH118  as the system joins them: a program may hold a slash
        if os.sep not in argv[0] and os.access(program, os.X_OK) and os.path.isfile(program):  # noqa: PTH113
            return [program if os.pathsep in folder else argv[0], *argv[1:]]
    return list(argv)


def too_much(files: Sequence[int]) -> bool:
    """Whether a command has printed more than it may into one of the files."""
    return any(os.fstat(file).st_size > MOST_OUTPUT for file in files)


class Entry:
    """One process as ``/proc`` shows it. ``start`` tells it from a later process with the same id."""

    def __init__(self, pid: int, parent: int, start: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        self.state = state


def entry(pid: int) -> Entry | None:
    """Read one process; ``None`` when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
        fields = text[text.rindex(")") + 2 :].split()
        return Entry(pid, int(fields[1]), int(fields[19]), fields[0])
    except (OSError, ValueError, IndexError):
        return None


def visible() -> dict[int, Entry]:
    """All processes that can be seen, by id."""
    found = (entry(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {one.pid: one for one in found if one}


def descendants(table: dict[int, Entry], roots: set[int]) -> set[int]:
    """The ids of everything below ``roots``, without the roots."""
    children: dict[int, list[int]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one.pid)
    below: set[int] = set()
    left = list(roots)
    while left:
        for child in children.get(left.pop(), []):
            if child not in below:
                below.add(child)
                left.append(child)
    return below - roots


def carriers(table: dict[int, Entry], token: str) -> set[int]:
    """The processes in whose environment the token is, wherever in the process tree they are."""
    needle = f"{TOKEN}={token}".encode()
    found = set()
    for pid in table:
        with contextlib.suppress(OSError):
            if needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found


def send(target: Entry, number: int) -> bool:
    """Send a signal to exactly this process: nothing is sent when its id belongs to a later one by now."""
    try:
        handle = os.pidfd_open(target.pid) if hasattr(os, "pidfd_open") else -1
    except ProcessLookupError:
        return False
    except OSError:
        handle = -1
    try:
        now = entry(target.pid)
        if now is None or now.start != target.start or now.state in "ZX":
            return False
        if handle >= 0 and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(target.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


class Supervised:
    """A started process, all it started (whatever session or parent it moved to), and how they are stopped."""

    def __init__(self, token: str, grace_s: float, stop_command: Sequence[str]) -> None:
        self.token = token
        self.grace_s = grace_s
        self.stop_command = list(stop_command)
        self.pid = 0
        self.exit_code: int | None = None
        self.codes: dict[int, int] = {}
        self._helpers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, argv: Sequence[str], env: dict[str, str], log: int, keep: Sequence[int]) -> None:
        """Start it in a session of its own, with the lock files kept open. Raises ``OSError``."""
        child = subprocess.Popen(
            list(argv),
            env={**env, TOKEN: self.token},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=list(keep),
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  this program has one thread
        )
        self.pid = child.pid
        child.returncode = 0  # reaped here, not by subprocess

    def reap(self) -> None:
        """Collect ended children, adopted orphans included; remember how the started process ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            self.codes[pid] = code
            if pid == self.pid:
                self.exit_code = code
            helper = self._helpers.pop(pid, None)
            if helper:
                helper.returncode = 0

    def members(self, everywhere: bool = True) -> dict[int, Entry]:
        """What lives of it. ``everywhere`` also looks for those that were started on its behalf by another parent."""
        self.reap()
        table = visible()
        helpers = set(self._helpers)
        mine = descendants(table, {os.getpid()})
        if everywhere and self.token:
            carrying = carriers(table, self.token) - {os.getpid()}
            mine |= carrying | descendants(table, carrying)
        mine -= helpers | descendants(table, helpers)
        return {pid: table[pid] for pid in mine if table[pid].state not in "ZX"}

    def stop(self, grace_s: float) -> dict[str, Any]:
        """Ask first (SIGINT, then SIGTERM), wait, and kill last; see :class:`hosts.base.StopRecord` for the answer.

        SIGINT goes to the topmost processes only, because a server must be free to end its own workers in order;
        SIGTERM and SIGKILL go to all.
        """
        begin = time.monotonic()
        told: dict[tuple[int, int], int] = {}
        top_since: dict[tuple[int, int], float] = {}
        first_tops: set[tuple[int, int]] | None = None
        alive = self.members()
        if alive:
            self._run_stop_command()
        while alive:
            waited = time.monotonic() - begin
            number = signal.SIGINT if waited < grace_s / 2 else signal.SIGTERM if waited < grace_s else signal.SIGKILL
            if waited > grace_s + _KILL_WAIT_S:
                break
            tops = {(one.pid, one.start) for one in alive.values() if one.parent not in alive}
            first_tops = tops if first_tops is None else first_tops
            for key in tops:
                top_since.setdefault(key, waited)
            for one in alive.values():
                key = (one.pid, one.start)
                asked = number != signal.SIGINT or (
                    key in tops and (key in first_tops or waited - top_since[key] >= _ORPHAN_WAIT_S)
                )
                if asked and told.get(key, 0) != number and send(one, number):
                    told[key] = number
            looked = time.monotonic()
            time.sleep(0.02 if waited < 1 else 0.1)
            alive = self.members()
            time.sleep(min(1.0, 2 * max(0.0, time.monotonic() - looked - 0.1)))  # a host with very many processes
        strongest = [number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT) if number in told.values()]
        self._end_stop_command()
        self.reap()  # what ended since the last look
        return {
            "how": signal.Signals(strongest[0]).name.lower() if strongest else "exited",
            "seconds": time.monotonic() - begin,
            "exit_code": self.exit_code,
            "survivors": len(alive),
        }

    def _end_stop_command(self) -> None:
        deadline = time.monotonic() + _HELPER_WAIT_S
        while self._helpers and time.monotonic() < deadline:
            time.sleep(0.02)
            self.reap()
        for helper in self._helpers.values():
            helper.kill()

    def _run_stop_command(self) -> None:
        if not self.stop_command:
            return
        argv = [word.replace("{pid}", str(self.pid)) for word in self.stop_command]
        with contextlib.suppress(OSError):
            helper = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._helpers[helper.pid] = helper


def prepare() -> None:
    """Called in a new child: Ctrl-C works as usual, and if this agent is killed, the child is asked to end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _PRCTL(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, so that the tree stays whole."""
    _PRCTL(_SUBREAPER, 1, 0, 0, 0)
