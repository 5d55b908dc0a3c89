"""The supervision agent: holds leases and stops what was started, on the machine where it runs.

One file, standard library only, Python 3.8 or later: it is run as a program beside the server it supervises, here or on
a host reached over SSH, by an interpreter that may know nothing of this project. It is also imported for its locks.

As a program it reads one JSON request per line on stdin and answers each with one JSON line on stdout. When its stdin
ends (the program that asked is gone, in whatever way), or nothing was heard for ``--silence`` seconds, or it gets
SIGTERM, SIGINT or SIGHUP, it stops the server gently, gives the cards back and ends. All waiting is measured on the
monotonic clock.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TOKEN = "ANCHORMATRIX_RUN"
_HOLDER_BYTES = 8192
_PASSING_LOOK_S = 0.05
_KILL_WAIT_S = 5.0
_ORPHAN_WAIT_S = 0.5
_SUBREAPER, _PARENT_DEATH = 36, 1


# --- locks: one file per card, held by the kernel for whoever has it open -------------------------------------------


class HeldError(Exception):
    """A card is held by somebody else; ``holder`` is what they wrote about themselves."""

    def __init__(self, card: int, holder: dict[str, Any]) -> None:
        super().__init__(card)
        self.card = card
        self.holder = holder


def take(
    directory: str, cards: Sequence[int], holder: dict[str, Any], wait_s: float, pause: Callable[[float], None]
) -> list[int]:
    """Lock all cards or none, in ascending order, and return the open files in that order.

    Nothing is held while waiting, so two who wait for each other's cards cannot block one another. Raises
    :class:`HeldError` when a card is still held after ``wait_s``, ``OSError`` when the folder cannot be used.
    """
    _make_folder(directory)
    begin = time.monotonic()
    while True:
        try:
            files = _take_now(directory, sorted(set(cards)), holder)
        except HeldError:
            waited = time.monotonic() - begin
            if waited >= max(wait_s, _PASSING_LOOK_S):
                raise
            pause(random.uniform(0.002, 0.02 if waited < 1 else 0.2))
        else:
            if files is not None:
                return files


def give_back(files: Sequence[int], clear: bool = True) -> None:
    """Close the locks; ``clear`` also wipes what was said of the holder (not while something may still hold on)."""
    for file in files:
        if clear:
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
    for file in files:
        os.close(file)


def holders(directory: str) -> list[dict[str, Any]]:
    """Who holds which card now, ascending by card: ``card`` and what the holder wrote about itself."""
    found = []
    for path in Path(directory).glob("card-*.lock"):
        digits = path.name[len("card-") : -len(".lock")]
        if digits.isdigit():
            file = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append({**_read_holder(file), "card": int(digits)})
            finally:
                os.close(file)
    return sorted(found, key=lambda holder: int(holder["card"]))


def _make_folder(directory: str) -> None:
    path = Path(directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o1777)  # every user of the host shares it; nobody removes another's file


def _take_now(directory: str, cards: Sequence[int], holder: dict[str, Any]) -> list[int] | None:
    """Lock the cards, or ``None`` when a file was replaced under us (the folder was deleted) and it must be retried."""
    files: list[int] = []
    try:
        for card in cards:
            path = str(Path(directory) / f"card-{card}.lock")
            files.append(_open_lock(path))
            try:
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HeldError(card, _read_holder(files[-1])) from None
            if not _is_still(path, files[-1]):
                give_back(files, clear=False)
                return None
        for card, file in zip(cards, files):  # noqa: B905  Python 3.8 has no strict
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({**holder, "card": card}).encode()[:_HOLDER_BYTES], 0)
    except BaseException:
        give_back(files, clear=False)
        raise
    return files


def _open_lock(path: str) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(20):
        # Without O_CREAT first: kernels refuse O_CREAT on another user's file in a sticky folder.
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            pass
        except PermissionError:
            time.sleep(0.005)  # its maker has not opened it to everybody yet
            continue
        with contextlib.suppress(FileExistsError):
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)
            return file
    return os.open(path, flags)


def _is_still(path: str, file: int) -> bool:
    try:
        named = Path(path).stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino) and stat.S_ISREG(mine.st_mode)


def _read_holder(file: int) -> dict[str, Any]:
    try:
        values = json.loads(os.pread(file, _HOLDER_BYTES, 0).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


# --- processes: who lives, who belongs to us ------------------------------------------------------------------------


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


def processes() -> dict[int, Entry]:
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
        self._helpers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, argv: Sequence[str], env: dict[str, str], log: int, keep: Sequence[int]) -> None:
        """Start it in a session of its own, with the lock files kept open. Raises ``OSError``."""
        prctl = ctypes.CDLL(None).prctl

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            prctl(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)  # if this agent is killed, it is asked to end

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
            if pid == self.pid:
                self.exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            helper = self._helpers.pop(pid, None)
            if helper:
                helper.returncode = 0

    def members(self, everywhere: bool = True) -> dict[int, Entry]:
        """What lives of it. ``everywhere`` also looks for those that were started on its behalf by another parent."""
        self.reap()
        table = processes()
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
        for helper in self._helpers.values():
            helper.kill()
        return {
            "how": signal.Signals(strongest[0]).name.lower() if strongest else "exited",
            "seconds": time.monotonic() - begin,
            "exit_code": self.exit_code,
            "survivors": len(alive),
        }

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


# --- the program ----------------------------------------------------------------------------------------------------


class GoneError(Exception):
    """Whoever asked is gone: stop everything."""


class Agent:
    """Answers requests on stdin until it ends."""

    def __init__(self, keep: Sequence[int], silence_s: float) -> None:
        self._keep = list(keep)
        self._locks: list[int] = []
        self._silence_s = silence_s
        self._heard = time.monotonic()
        self._buffer = b""
        self._server = Supervised("", 30.0, [])
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._told_to_end = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        """Answer until stdin ends; then stop, give back and return."""
        survivors = 0
        try:
            while True:
                self._answer(self._next_line())
        except GoneError:
            survivors = int(self._server.stop(self._server.grace_s)["survivors"])
        finally:
            give_back(self._locks, clear=not survivors)
            if not survivors:
                for file in self._keep:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file, 0)

    def _end(self, *_: object) -> None:
        self._told_to_end = True

    def _pump(self, wait_s: float) -> None:
        """Wait for input or a signal, at most ``wait_s``. Raises :class:`GoneError` at the end of either."""
        ready, _, _ = select.select([0, self._wake], [], [], wait_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._told_to_end:
            raise GoneError
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                raise GoneError
            self._buffer += data
            self._heard = time.monotonic()
        elif self._silence_s and time.monotonic() - self._heard > self._silence_s:
            raise GoneError

    def _next_line(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._pump(1.0)
            self._server.reap()
        line, _, self._buffer = self._buffer.partition(b"\n")
        request = json.loads(line.decode("utf-8"))
        if not isinstance(request, dict):
            raise ValueError("a request is an object")
        return request

    def _answer(self, request: dict[str, Any]) -> None:
        name = request.pop("op")
        if name == "beat":
            return
        try:
            reply = getattr(self, "_op_" + name)(**request)
        except HeldError as error:
            reply = {"error": "held", "card": error.card, "holder": error.holder}
        except OSError as error:
            reply = {"error": "os", "text": str(error), "file": str(error.filename or "")}
        try:
            os.write(1, json.dumps(reply).encode() + b"\n")
        except OSError:
            raise GoneError from None

    def _op_lease(self, directory: str, cards: list[int], holder: dict[str, Any], wait_s: float) -> dict[str, Any]:
        self._locks += take(_expanded(directory), cards, {**holder, **_me(), "agent": os.getpid()}, wait_s, self._pump)
        return {}

    def _op_start(
        self,
        argv: list[str],
        env: dict[str, str],
        path: list[str],
        log: str,
        grace_s: float,
        stop_command: list[str],
        token: str,
    ) -> dict[str, Any]:
        if self._server.members():
            return {"error": "busy"}
        self._server = Supervised(token, grace_s, stop_command)
        complete = {**os.environ, **env}
        complete["PATH"] = os.pathsep.join([_expanded(one) for one in path] + [complete.get("PATH", os.defpath)])
        log = _expanded(log)
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._server.start(argv, complete, file, self._keep + self._locks)
        except FileNotFoundError:
            return {"error": "missing", "path": complete["PATH"]}
        finally:
            os.close(file)
        return {"pid": self._server.pid}

    def _op_adopt(self, token: str) -> dict[str, Any]:
        """Take over what an agent that was killed left behind."""
        self._server = Supervised(token, self._server.grace_s, [])
        return {}

    def _op_poll(self) -> dict[str, Any]:
        self._server.reap()
        return {"exit": self._server.exit_code}

    def _op_tree(self) -> dict[str, Any]:
        return {"pids": sorted(self._server.members())}

    def _op_stop(self, grace_s: float) -> dict[str, Any]:
        return self._server.stop(grace_s)

    def _op_release(self, clear: bool) -> dict[str, Any]:
        give_back(self._locks, clear=clear)
        self._locks = []
        return {}


def _me() -> dict[str, Any]:
    return {"machine": os.uname().nodename, "uid": os.getuid()}


def _expanded(path: str) -> str:
    """A path of the configuration on this machine: ``~`` and relative paths are below the home folder."""
    return str(Path.home() / Path(path).expanduser())


def main(arguments: Sequence[str]) -> int:
    """Run as a program: ``serve``, or ``holders FOLDER`` (one JSON line on stdout)."""
    parser = argparse.ArgumentParser(prog="agent")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer requests on stdin until it ends")
    serve.add_argument("--keep", default="", help="open files to hold on to, such as 3,4")
    serve.add_argument("--silence", type=float, default=0, help="seconds without a word after which all is stopped")
    listing = commands.add_parser("holders", help="print who holds which card")
    listing.add_argument("folder")
    options = parser.parse_args(list(arguments))
    if options.command == "holders":
        folder = _expanded(options.folder)
        os.write(1, json.dumps(holders(folder)).encode() + b"\n")
        return 0
    Agent([int(one) for one in options.keep.split(",") if one], options.silence).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
