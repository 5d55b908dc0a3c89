"""The rank processes as the server sees them: started together, asked together, stopped together."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
_STRAGGLER_S = 30.0  # after one rank has failed an order, how long the others may take to say so too
_STOP_S = 5.0


class WorkersError(Exception):
    """A rank died, or failed while others wait for it; the server cannot go on."""


class RequestError(Exception):
    """Every rank refused the same order; the server can go on."""


@dataclass
class _Worker:
    rank: int
    process: subprocess.Popen[bytes]
    link: socket.socket
    received: bytes = b""


class Workers:
    """All ranks of one server. Orders are sent one at a time; each is answered by every rank."""

    def __init__(self, flags: Sequence[str], cores: Sequence[tuple[int, ...]], environment: Mapping[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dummy-run-")
        self._lock = threading.Lock()
        self._next_id = 0
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        try:
            for rank, own in enumerate(cores):
                self._start(rank, len(cores), flags, own, environment)
        except BaseException:
            self.stop()
            raise

    def wait_ready(self) -> None:
        """Wait until every rank has built and split its model. Raises :class:`WorkersError` with the first failure."""
        answers = self._collect(None)
        failed = [f"rank {rank}: {answer['error']}" for rank, answer in answers.items() if not answer["ok"]]
        if failed:
            raise WorkersError(failed[0])

    def ask(self, op: str, **values: Any) -> list[dict[str, Any]]:
        """Give every rank one order and return their answers in rank order.

        Raises :class:`RequestError` when all ranks refuse, :class:`WorkersError` when the ranks are no longer together.
        """
        with self._lock:
            self._next_id += 1
            line = (json.dumps({"op": op, "id": self._next_id, **values}) + "\n").encode()
            for worker in self._workers:
                with contextlib.suppress(OSError):  # a dead rank shows in the answers
                    worker.link.sendall(line)
            answers = self._collect(self._next_id)
        failed = {rank: answer["error"] for rank, answer in answers.items() if not answer["ok"]}
        if len(failed) == len(answers):
            raise RequestError(failed[0])
        if failed:
            rank, error = next(iter(failed.items()))
            raise WorkersError(f"rank {rank} failed alone: {error}")
        return [answers[rank] for rank in sorted(answers)]

    def dead(self) -> str | None:
        """Say which rank is gone, outside a stop; None when all live."""
        if self._stopping:
            return None
        for worker in self._workers:
            code = worker.process.poll()
            if code is not None:
                return f"rank {worker.rank} (pid {worker.process.pid}) died with {_exit_text(code)}"
        return None

    def stop(self) -> None:
        """Close the links, which ends every rank, and see them gone; a rank that stays is terminated, then killed."""
        self._stopping = True
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.link.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _STOP_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()  # it ignores SIGTERM and its link is closed: it is stuck in a kernel
                worker.process.wait()
            worker.link.close()
        self._directory.cleanup()

    def _start(
        self, rank: int, world: int, flags: Sequence[str], cores: tuple[int, ...], environment: Mapping[str, str]
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            own = {
                **environment,
                "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [environment.get("PYTHONPATH")])]),
                "OMP_NUM_THREADS": str(len(cores)),
                "MKL_NUM_THREADS": str(len(cores)),
                "LOCAL_RANK": str(rank),
            }
            if sys.platform == "linux":
                own.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this host, whatever its name resolves to
            command = [sys.executable, "-m", "anchormatrix.engines.dummy_run.rank"]
            command += [str(rank), str(world), f"{self._directory.name}/store", str(theirs.fileno()), *flags]
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, cores)  # inherited by the rank before its first instruction
            try:
                process = subprocess.Popen(
                    command, env=own, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=self._directory.name
                )
            finally:
                os.sched_setaffinity(0, before)
        self._workers.append(_Worker(rank, process, ours))
        self._selector.register(ours, selectors.EVENT_READ, self._workers[-1])

    def _collect(self, order: int | None) -> dict[int, dict[str, Any]]:
        """One answer per rank; gives up once a rank is gone, or has failed and the others do not follow."""
        answers: dict[int, dict[str, Any]] = {}
        deadline: float | None = None
        while len(answers) < len(self._workers):
            for key, _ in self._selector.select(timeout=0.2):
                answer = self._receive(key.data, order)
                if answer is not None:
                    answers[key.data.rank] = answer
            failed = [answer for answer in answers.values() if not answer["ok"]]
            if len(answers) == len(self._workers):
                break
            if failed and deadline is None:
                deadline = time.monotonic() + _STRAGGLER_S
            gone = self.dead()
            if (gone and not failed) or (deadline is not None and (gone or time.monotonic() > deadline)):
                raise WorkersError(str(failed[0]["error"]) if failed else str(gone))
            if self._stopping:
                raise WorkersError("the server is stopping")
        return answers

    def _receive(self, worker: _Worker, order: int | None) -> dict[str, Any] | None:
        try:
            data = worker.link.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.link)
            return None
        worker.received += data
        line, end, rest = worker.received.partition(b"\n")
        if not end:
            return None
        worker.received = rest
        answer: dict[str, Any] = json.loads(line)
        return answer if answer.get("id") == order else None


def _exit_text(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
