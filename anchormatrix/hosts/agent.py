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
import base64
import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TOKEN = "ANCHORMATRIX_RUN"
SUSPECT = "suspect"
RECORD_SUFFIX = ".stop.json"
_HOLDER_BYTES = 8192
_PASSING_LOOK_S = 0.05
_KILL_WAIT_S = 5.0
_ORPHAN_WAIT_S = 0.5
_SUBREAPER, _PARENT_DEATH = 36, 1
_END_WAIT_S = 2.0
_READ_LIMIT = 1 << 20
_PRCTL = ctypes.CDLL(None).prctl


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
                _write_holder(file, {key: value for key, value in _read_holder(file).items() if key == SUSPECT})
    for file in files:
        os.close(file)


def suspect_since(file: int) -> Any:
    """What is noted against a locked card: ``None``, or what happened on it."""
    return _read_holder(file).get(SUSPECT)


def mark(files: Sequence[int], note: Any) -> None:
    """Note against locked cards that a job on them had to be killed; ``None`` takes the note away."""
    for file in files:
        said = {key: value for key, value in _read_holder(file).items() if key != SUSPECT}
        _write_holder(file, {**said, SUSPECT: note} if note else said)


def holders(directory: str) -> list[dict[str, Any]]:
    """What is known of each card, ascending: ``card``, ``held``, what the holder said, and ``suspect`` if noted.

    Cards that are neither held nor suspect are left out.
    """
    found = []
    for path in Path(directory).glob("card-*.lock"):
        digits = path.name[len("card-") : -len(".lock")]
        if digits.isdigit():
            file = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                said = {key: value for key, value in _read_holder(file).items() if key == SUSPECT}
                held = False
            except BlockingIOError:
                said, held = _read_holder(file), True
            finally:
                os.close(file)
            if held or said:
                found.append({**said, "card": int(digits), "held": held})
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
            noted = suspect_since(file)
            _write_holder(file, {**holder, "card": card, **({SUSPECT: noted} if noted else {})})
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


def _write_holder(file: int, values: dict[str, Any]) -> None:
    os.ftruncate(file, 0)
    if values:
        os.pwrite(file, json.dumps(values).encode(), 0)


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
            preexec_fn=_prepare,  # noqa: PLW1509  this program has one thread
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


def _prepare() -> None:
    """In a new child: Ctrl-C works as usual, and if this agent is killed, the child is asked to end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _PRCTL(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)


# --- the program ----------------------------------------------------------------------------------------------------


class GoneError(Exception):
    """Whoever asked is gone: stop everything."""


class Agent:
    """Answers requests on stdin until it ends."""

    def __init__(self, keep: Sequence[int], silence_s: float) -> None:
        self._keep = list(keep)
        self._locks: list[int] = []
        self._log = ""
        self._silence_s = silence_s
        self._heard = time.monotonic()
        self._buffer = b""
        self._server = Supervised("", 30.0, [])
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._told_to_end = False
        self._asker_lives = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the end of a child wakes us
        _PRCTL(_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        """Answer until stdin ends; then stop, give back and return."""
        survivors = 0
        try:
            while True:
                self._answer(self._next_line())
        except GoneError:
            record = self._op_stop(self._server.grace_s)
            survivors = int(record["survivors"])
            if self._log and record["how"] != "exited":
                # Whoever asked is not there to be told: the record lies beside the log.
                with contextlib.suppress(OSError):
                    Path(self._log + RECORD_SUFFIX).write_text(json.dumps(record), encoding="utf-8")
        finally:
            give_back(self._keep, clear=not survivors and not self._asker_lives)
            give_back(self._locks, clear=not survivors)

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
        _write_all(json.dumps(reply).encode() + b"\n")

    def _op_lease(self, directory: str, cards: list[int], holder: dict[str, Any], wait_s: float) -> dict[str, Any]:
        self._locks += take(_expanded(directory), cards, holder, wait_s, self._pump)
        return {"suspect": [bool(suspect_since(file)) for file in self._locks]}

    def _op_trust(self) -> dict[str, Any]:
        mark(self._locks, None)
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
        complete = _environment(env, path)
        self._log = log = _expanded(log)
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._server.start(argv, complete, file, self._keep + self._locks)
        except FileNotFoundError:
            return {"error": "missing", "path": complete["PATH"]}
        finally:
            os.close(file)
        return {"pid": self._server.pid}

    def _op_bye(self) -> dict[str, Any]:
        """The end that follows is wanted: whoever lent the lock files goes on holding them."""
        self._asker_lives = True
        return {}

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
        record = self._server.stop(grace_s)
        if record["how"] == "sigkill":
            # A job killed on several cards can leave their driver slow: say so to whoever comes next.
            mark(self._keep + self._locks, "a job had to be killed at " + time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        return record

    def _op_run(self, argv: list[str], env: dict[str, str], path: list[str], timeout_s: float) -> dict[str, Any]:
        """Run a command to its end; what it prints is held in memory."""
        complete = _environment(env, path)
        out, err = os.memfd_create("out"), os.memfd_create("err")
        try:
            try:
                child = subprocess.Popen(
                    argv,
                    env=complete,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=_prepare,  # noqa: PLW1509  this program has one thread
                )
            except FileNotFoundError:
                return {"error": "missing", "path": complete["PATH"]}
            child.returncode = 0  # reaped here, not by subprocess
            try:
                ended = self._wait_for(child.pid, timeout_s)
            finally:
                self._end_group(child.pid)
            if not ended:
                return {"error": "hangs"}
            return {"code": self._server.codes.pop(child.pid), "out": _encoded(out), "err": _encoded(err)}
        finally:
            os.close(out)
            os.close(err)

    def _wait_for(self, pid: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            self._server.reap()
            left = deadline - time.monotonic()
            if pid in self._server.codes or left <= 0:
                return pid in self._server.codes
            self._pump(min(left, 1.0))

    def _end_group(self, pid: int) -> None:
        """End what is left of a command: ask, wait, kill. A process stuck in the kernel is not waited for."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _END_WAIT_S
            if pid not in self._server.codes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
            while pid not in self._server.codes and time.monotonic() < deadline:
                time.sleep(0.02)
                self._server.reap()

    def _op_read(self, file: str, offset: int) -> dict[str, Any]:
        with Path(file).open("rb") as stream:
            stream.seek(offset)
            return {"data": base64.b64encode(stream.read(_READ_LIMIT)).decode()}

    def _op_send(self, file: str, offset: int, size: int) -> dict[str, Any]:
        """Answer, and then send ``size`` bytes of the file as they are."""
        with Path(file).open("rb") as stream:
            _write_all(b"{}\n")
            while size:
                try:
                    sent = os.sendfile(1, stream.fileno(), offset, min(size, _READ_LIMIT))
                except OSError:
                    raise GoneError from None
                if not sent:
                    raise GoneError  # the file became shorter: the end of our output says so
                offset += sent
                size -= sent
        return {}

    def _op_port(self) -> dict[str, Any]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return {"port": probe.getsockname()[1]}

    def _op_holders(self, directory: str) -> dict[str, Any]:
        return {"holders": holders(_expanded(directory))}


def _environment(env: dict[str, str], path: Sequence[str]) -> dict[str, str]:
    complete = {**os.environ, **env}
    complete["PATH"] = os.pathsep.join([_expanded(one) for one in path] + [complete.get("PATH", os.defpath)])
    return complete


def _encoded(file: int) -> str:
    return base64.b64encode(os.pread(file, os.fstat(file).st_size, 0)).decode()


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        raise GoneError from None


def _expanded(path: str) -> str:
    """A path of the configuration on this machine: ``~`` and relative paths are below the home folder."""
    return str(Path.home() / Path(path).expanduser())


def main(arguments: Sequence[str]) -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(prog="agent", description="answer requests on stdin until it ends")
    parser.add_argument("--keep", default="", help="open lock files to hold on to, such as 3,4")
    parser.add_argument("--silence", type=float, default=0, help="seconds without a word after which all is stopped")
    options = parser.parse_args(list(arguments))
    Agent([int(one) for one in options.keep.split(",") if one], options.silence).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
