"""A port of this machine's loopback that reaches a port of the host's loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import paramiko

from anchormatrix.errors import HostError

_CHUNK = 1 << 16


class Forward:
    """Listens on an ephemeral loopback port until it is closed; each connection has two threads."""

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
        """Join one connection to the host's port; refused there (the server is not up yet) is closed here."""
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            far = self._transport().open_channel(
                "direct-tcpip", ("127.0.0.1", self._port), near.getpeername(), timeout=20
            )
        except (HostError, OSError, EOFError, paramiko.SSHException):
            near.close()
            return
        threading.Thread(target=self._to_far, args=(near, far), daemon=True).start()
        with contextlib.suppress(OSError, EOFError):
            while data := far.recv(_CHUNK):
                near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)
        near.close()
        far.close()

    def _to_far(self, near: socket.socket, far: paramiko.Channel) -> None:
        with contextlib.suppress(OSError, EOFError):
            while data := near.recv(_CHUNK):
                far.sendall(data)
        with contextlib.suppress(OSError, EOFError):
            far.shutdown_write()
