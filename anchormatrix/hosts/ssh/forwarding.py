"""A port of this machine's loopback that reaches a port of the host's loopback."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import paramiko

from anchormatrix.errors import HostError

_CHUNK = 1 << 16
_OPEN_S = 20


class Forward:
    """Listens on an ephemeral loopback port until it is closed; each connection has a thread.

    ``transport`` gives the SSH connection to go through. It should carry nothing else: data that we send while the
    other side closes a channel can reach it after the close, and OpenSSH then ends the whole connection.
    """

    def __init__(self, transport: Callable[[], paramiko.Transport], port: int) -> None:
        self._transport = transport
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.local_port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name=f"forward-{port}").start()

    def close(self) -> None:
        """Stop listening. Connections end with the transport."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        """Join one connection to the host's port; one refused there (the server is not up yet) is closed here."""
        with near:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there = ("127.0.0.1", self._port)
            try:
                far = self._transport().open_channel("direct-tcpip", there, near.getpeername(), timeout=_OPEN_S)
            except (HostError, OSError, EOFError, paramiko.SSHException):
                return
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                _join(near, far)
            far.close()


def _join(near: socket.socket, far: paramiko.Channel) -> None:
    """Pass bytes both ways until one side ends. One thread, so that nothing is sent after the channel was closed."""
    sides: list[Any] = [near, far]
    while True:
        ready, _, _ = select.select(sides, [], [])
        if far in ready:
            data = far.recv(_CHUNK)
            if not data:
                return
            near.sendall(data)
        if near in ready:
            data = near.recv(_CHUNK)
            if not data:
                return
            far.sendall(data)
