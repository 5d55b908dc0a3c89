"""The pipes of a supervision agent over SSH."""

from __future__ import annotations

import contextlib
import select
import time

import paramiko

from anchormatrix.hosts.failures import login_prints

_MOST_BEFORE = 1 << 22


class AgentChannel:
    """An agent's pipes over SSH; what the login there prints before the agent greets is passed over."""

    def __init__(self, channel: paramiko.Channel, greeting: bytes, where: str) -> None:
        self._channel = channel
        self._greeting = greeting
        self._where = where
        self._said: str | None = None

    def send(self, data: bytes) -> None:
        self._channel.settimeout(20)
        self._channel.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        data = self._after_greeting(deadline) if self._greeting else b""
        return data or self._received(deadline)

    def _after_greeting(self, deadline: float) -> bytes:
        """What came together with the end of the greeting. Raises :class:`HostError` when something else came."""
        printed = bytearray()
        while (at := printed.find(self._greeting)) < 0:
            try:
                data = self._received(deadline)
            except TimeoutError:
                if not printed:
                    raise
                data = b""
            printed += data
            if not data or len(printed) > _MOST_BEFORE:
                if printed:
                    raise login_prints(bytes(printed), self._where)
                return b""
        after = bytes(printed[at + len(self._greeting) :])
        self._greeting = b""
        return after

    def _received(self, deadline: float) -> bytes:
        while not self._channel.recv_ready():
            if self._channel.eof_received or self._channel.closed:
                return b""
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            select.select([self._channel], [], [], left)
            if self._channel.recv_stderr_ready() and not self._channel.recv_ready():
                time.sleep(0.01)
        return self._channel.recv(1 << 20)

    def end(self, timeout_s: float) -> str:
        if self._said is None:
            self._said = ""
            if self._greeting:  # it was never asked anything, and so has nothing to stop first
                timeout_s = min(timeout_s, 2)
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._channel.shutdown_write()
                self._channel.settimeout(timeout_s)
                self._said = self._channel.makefile_stderr("rb").read().decode("utf-8", "replace")
                self._channel.close()
        return self._said
