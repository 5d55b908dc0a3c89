"""The pipes of a supervision agent over SSH."""

from __future__ import annotations

import contextlib
import select
import time

import paramiko


class AgentChannel:
    """An agent's pipes over SSH."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._said: str | None = None

    def send(self, data: bytes) -> None:
        self._channel.settimeout(20)
        self._channel.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
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
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._channel.shutdown_write()
                self._channel.settimeout(timeout_s)
                self._said = self._channel.makefile_stderr("rb").read().decode("utf-8", "replace")
                self._channel.close()
        return self._said
