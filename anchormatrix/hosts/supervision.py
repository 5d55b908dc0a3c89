"""The client of a supervision agent: one request line, one answer line, over pipes or an SSH channel."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from anchormatrix.config.secrets import revealed_all, revealed_env
from anchormatrix.errors import HostError, shown
from anchormatrix.hosts.base import StopRecord, SupervisedCommand
from anchormatrix.hosts.failures import missing_program

ANSWER_S = 20.0
_STOP_MARGIN_S = 20.0


class Wire(Protocol):
    """The two ends of an agent."""

    def send(self, data: bytes) -> None:
        """Write to its stdin. Raises ``OSError`` when it is gone."""
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Some bytes of its stdout, empty at the end. Raises ``TimeoutError``."""
        ...

    def end(self, timeout_s: float) -> str:
        """Close its stdin, wait until it has ended, and return what it said on stderr."""
        ...


class AgentClient:
    """One agent and the requests to it; safe to use from several threads."""

    def __init__(self, wire: Wire, where: str) -> None:
        self._wire = wire
        self._where = where
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._requests = 0
        self.lost = False
        self.ended = False

    def ask(self, op: str, *, answer_s: float = ANSWER_S, **fields: Any) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises :class:`HostError` when the agent is gone, or silent for ``answer_s``.
        """
        with self._lock:
            return self._line(answer_s, (self._send(op, fields),))

    def stream(self, size: int, timeout_s: float, write: Callable[[bytes], object], **fields: Any) -> dict[str, Any]:
        """Ask for ``size`` bytes of a file, hand them on as they come, and return the answer that ends them.

        Raises :class:`HostError` when they break off; what came until then was handed on.
        """
        with self._lock:
            number = self._send("send", {**fields, "size": size})
            answer = self._line(timeout_s, (number, "bytes"))
            if answer["id"] == number:
                return answer
            left, whole = size, False
            try:
                while left:
                    if not self._buffer:
                        self._buffer += self._received(timeout_s)
                    now = bytes(self._buffer[:left])
                    del self._buffer[:left]
                    left -= len(now)
                    write(now)
                whole = True
            finally:
                self.lost = self.lost or not whole  # between bytes and answers nobody could find the way back
            return self._line(timeout_s, (number,))

    def _send(self, op: str, fields: Mapping[str, Any]) -> int:
        if self.lost or self.ended:
            raise self._gone("was lost before")
        self._requests += 1
        try:
            with self._sending:
                self._wire.send(json.dumps({"op": op, "id": self._requests, **fields}).encode() + b"\n")
        except OSError:
            self.lost = True
            raise self._gone("ended unexpectedly") from None
        return self._requests

    def _line(self, timeout_s: float, wanted: Sequence[object]) -> dict[str, Any]:
        """The answer to a request; answers that an exception (Ctrl-C) kept somebody from reading are passed over."""
        while True:
            looked = 0
            while (end := self._buffer.find(b"\n", looked)) < 0:
                looked = len(self._buffer)
                self._buffer += self._received(timeout_s)
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                self.lost = True
                raise self._gone("answered something else than JSON")
            if answer.get("id") in wanted:
                return answer

    def _received(self, timeout_s: float) -> bytes:
        try:
            data = self._wire.receive(timeout_s)
        except TimeoutError:
            self.lost = True
            raise self._gone(f"did not answer within {timeout_s:.0f} s") from None
        except HostError:
            self.lost = True
            raise
        except OSError:
            data = b""
        if not data:
            self.lost = True
            raise self._gone("ended unexpectedly")
        return data

    def beat(self) -> None:
        """Tell the agent that we are alive, also while it works on a request; a loss shows at the next request."""
        with self._sending:
            if not (self.lost or self.ended):
                try:
                    self._wire.send(b'{"op": "beat"}\n')
                except OSError:
                    self.lost = True

    def end(self, timeout_s: float) -> None:
        """Let the agent stop what it supervises, give cards back and end. Idempotent."""
        with self._lock:
            with self._sending:  # no beat may follow
                first, self.ended = not self.ended, True
            if first:
                self._wire.end(timeout_s)

    def _gone(self, how: str) -> HostError:
        said = self._wire.end(0.5) if self.lost and not self.ended else ""
        return HostError(
            f"the supervision agent {how}"
            + (f" ({shown(said.strip().splitlines()[-1])[:300]})" if said.strip() else ""),
            where=self._where,
            todo="what it supervised is stopped gently by itself; see that the host is reachable, then run again",
        )


class SupervisedProcess:
    """A process under an agent; see :class:`anchormatrix.hosts.base.RunningProcess`."""

    def __init__(
        self,
        client: AgentClient,
        pid: int,
        *,
        after_loss: Callable[[float], StopRecord | None],
        grace_s: float,
    ) -> None:
        self.pid = pid
        self.client = client
        self._grace_s = grace_s
        self._after_loss = after_loss
        self._record: StopRecord | None = None
        self._exit: int | None = None

    def end(self) -> StopRecord | None:
        """Stop it with the grace it was started with; ``None`` when it is out of reach (and stopped by its agent)."""
        with contextlib.suppress(HostError):
            return self.stop(grace_s=self._grace_s)
        return None

    def poll(self) -> int | None:
        if self._record is None and self._exit is None:
            self._exit = self.client.ask("poll")["exit"]
        return self._exit if self._record is None else self._record.exit_code

    def tree(self) -> tuple[int, ...]:
        return () if self._record else tuple(self.client.ask("tree")["pids"])

    def stop(self, *, grace_s: float) -> StopRecord:
        if self._record is None:
            try:
                self._record = stop_under(self.client, grace_s)
            except HostError:
                self._record = self._after_loss(grace_s)
                if self._record is None:
                    raise
        return self._record


def stop_under(client: AgentClient, grace_s: float) -> StopRecord:
    """Have an agent stop what it supervises. Raises :class:`HostError` when the agent is gone."""
    return stop_record(client.ask("stop", grace_s=grace_s, answer_s=grace_s + _STOP_MARGIN_S))


def stop_record(values: Mapping[str, Any]) -> StopRecord:
    """The record of a stop as an agent gives or writes it."""
    return StopRecord(values["how"], values["seconds"], values["exit_code"], values["survivors"])


def start_under(
    client: AgentClient, command: SupervisedCommand, *, env: Mapping[str, str], path: Sequence[str], where: str
) -> tuple[int, str]:
    """Start a command under an agent; returns its process id and the token that its descendants carry.

    ``env`` and ``path`` are the host's own: the command's environment goes above the one, the other before PATH.
    """
    token = secrets.token_hex(16)
    answer = client.ask(
        "start",
        argv=revealed_all(command.argv),
        env=revealed_env({**env, **command.env}),
        path=list(path),
        log=command.log_path,
        grace_s=command.grace_s,
        stop_command=revealed_all(command.stop_command),
        token=token,
    )
    if answer.get("error") == "missing":
        raise missing_program(command.argv[0], where, answer["path"])
    if answer.get("error") == "busy":
        raise HostError("another server still runs under this lease", where=where, todo="stop it first")
    if "error" in answer:
        raise HostError(
            f"`{command.argv[0]}` could not be started: {answer['text']}",
            where=where,
            todo="see that the program may be executed and that the scratch folder can be written",
        )
    return int(answer["pid"]), token


def complete_holder(holder: Mapping[str, str]) -> dict[str, Any]:
    """What others read about a holder: the caller's words, and who, where and since when."""
    return {
        "user": _user(),
        "pid": os.getpid(),
        "from": os.uname().nodename,
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        **holder,
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
