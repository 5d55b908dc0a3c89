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
                _, said = _read_all(self._channel, time.monotonic() + timeout_s)
                self._said = said.decode("utf-8", "replace")
                self._channel.close()
        return self._said


def _read_all(channel: paramiko.Channel, deadline: float) -> tuple[bytes, bytes]:
    """Everything on stdout and stderr until both end or the deadline (monotonic) is there."""
    out, err = bytearray(), bytearray()
    while time.monotonic() < deadline:
        if channel.recv_ready():
            out += channel.recv(1 << 20)
        elif channel.recv_stderr_ready():
            err += channel.recv_stderr(1 << 20)
        elif channel.eof_received or channel.closed:
            break
        else:
            select.select([channel], [], [], max(0.0, min(0.2, deadline - time.monotonic())))
    return bytes(out), bytes(err)
