"""The supervision agent: a program beside the server it supervises, here or on a host reached over SSH.

It reads one JSON request per line on stdin and answers each with one JSON line on stdout. When its stdin ends (the
program that asked is gone, in whatever way), or nothing was heard for as many seconds as its argument allows, or it
gets SIGTERM, SIGINT or SIGHUP, it stops the server gently, gives the cards back and ends. All waiting is measured on
the monotonic clock.

Standard library only, Python 3.8 or later: see :mod:`anchormatrix.hosts.bundle` for how it comes to a host that knows
nothing of this project.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchormatrix.hosts import locks, processes
from anchormatrix.hosts.lease_folder import notes
from anchormatrix.hosts.processes import Supervised

RECORD_SUFFIX = ".stop.json"
_END_WAIT_S = 2.0
READ_LIMIT = 1 << 20


class GoneError(Exception):
    """Whoever asked is gone: stop everything."""


class Agent:
    """Answers requests on stdin until it ends."""

    def __init__(self, silence_s: float) -> None:
        self._locks: list[int] = []
        self._cards: list[tuple[str, int]] = []
        self._log = ""
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
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the end of a child wakes us
        processes.adopt_orphans()

    def serve(self) -> None:
        """Answer until stdin ends; then, and after any mishap, stop the server, give the cards back and return."""
        try:
            while True:
                self._answer(self._next_line())
        except GoneError:
            return
        finally:
            self._finish()

    def _finish(self) -> None:
        record = self._op_stop(self._server.grace_s)
        if self._log and record["how"] != "exited":
            # Whoever asked is not there to be told: the record lies beside the log.
            with contextlib.suppress(OSError):
                Path(self._log + RECORD_SUFFIX).write_text(json.dumps(record), encoding="utf-8")
        locks.give_back(self._locks, clear=not record["survivors"])

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
        name, number = request.pop("op"), request.pop("id", None)
        if name == "beat":
            return
        try:
            reply = getattr(self, "_op_" + name)(**request)
        except locks.HeldError as error:
            reply = {"error": "held", "card": error.card, "holder": error.holder}
        except OSError as error:
            reply = {"error": "os", "text": str(error), "file": str(error.filename or "")}
        _write_all(json.dumps({**reply, "id": number}).encode() + b"\n")

    def _op_lease(self, directory: str, cards: list[int], holder: dict[str, Any], wait_s: float) -> dict[str, Any]:
        folder = _expanded(directory)
        self._locks += locks.take(folder, cards, holder, wait_s, self._pump)
        self._cards += [(folder, card) for card in sorted(set(cards))]
        noted = notes.against(folder)
        return {"suspect": [card in noted for _, card in self._cards]}

    def _op_trust(self) -> dict[str, Any]:
        for folder, card in self._cards:
            notes.trust(folder, card)
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
        complete = processes.environment(env, _folders(path))
        self._log = log = _expanded(log)
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._server.start(processes.found(argv, _folders(path)), complete, file, self._locks)
        except FileNotFoundError:
            return {"error": "missing", "path": complete["PATH"]}
        finally:
            os.close(file)
        return {"pid": self._server.pid}

    def _op_release(self) -> dict[str, Any]:
        """Stop the server and give the cards back; ``over``: nothing is left, so that this agent may serve again."""
        over = not self._op_stop(self._server.grace_s)["survivors"]
        locks.give_back(self._locks, clear=over)
        self._locks, self._cards, self._log = [], [], ""
        return {"over": over}

    def _op_adopt(self, token: str, directory: str, cards: list[int]) -> dict[str, Any]:
        """Take over the server that a killed agent left behind; it is the server that holds the locks on its cards."""
        self._server = Supervised(token, self._server.grace_s, [])
        self._cards = [(_expanded(directory), card) for card in cards]
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
            for folder, card in self._cards:
                notes.note(folder, card, "a job had to be killed at " + time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        return record

    def _op_run(self, argv: list[str], env: dict[str, str], path: list[str], timeout_s: float) -> dict[str, Any]:
        """Run a command to its end; what it prints is held in memory."""
        complete = processes.environment(env, _folders(path))
        out, err = os.memfd_create("out"), os.memfd_create("err")
        try:
            try:
                child = subprocess.Popen(
                    processes.found(argv, _folders(path)),
                    env=complete,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=processes.prepare,  # noqa: PLW1509  this program has one thread
                )
            except FileNotFoundError:
                return {"error": "missing", "path": complete["PATH"]}
            child.returncode = 0  # reaped here, not by subprocess
            try:
                ended = self._wait_for(child.pid, timeout_s, (out, err))
            finally:
                self._end_group(child.pid)
            if processes.too_much((out, err)):
                return {"error": "talks"}
            if not ended:
                return {"error": "hangs"}
            return {"code": self._server.codes.pop(child.pid), "out": _encoded(out), "err": _encoded(err)}
        finally:
            os.close(out)
            os.close(err)

    def _wait_for(self, pid: int, timeout_s: float, files: Sequence[int]) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            self._server.reap()
            left = deadline - time.monotonic()
            if pid in self._server.codes or left <= 0 or processes.too_much(files):
                return pid in self._server.codes
            self._pump(min(left, 0.1))

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
            return {"data": base64.b64encode(stream.read(READ_LIMIT)).decode()}

    def _op_send(self, file: str, offset: int, size: int) -> dict[str, Any]:
        """Say that a file comes, send ``size`` bytes of it as they are, and then answer."""
        with Path(file).open("rb") as stream:
            _write_all(b'{"id": "bytes"}\n')
            while size:
                try:
                    sent = os.sendfile(1, stream.fileno(), offset, min(size, READ_LIMIT))
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
        return {"holders": locks.holders(_expanded(directory))}


def _folders(path: Sequence[str]) -> list[str]:
    return [_expanded(one) for one in path]


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
    """Run as a program: the number of seconds without a word after which all is stopped, and a word to greet with.

    The greeting is the word reversed, so that a login which prints the command it was given does not greet for us.
    """
    for word in arguments[1:]:
        _write_all(f"{word[::-1]}\n".encode())
    Agent(float(arguments[0])).serve()
    return 0
