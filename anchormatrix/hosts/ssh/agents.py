"""The supervision agents on a host reached over SSH, and the connections they run over."""

from __future__ import annotations

import logging
import secrets
import shlex
import threading

import paramiko

from anchormatrix.errors import HostError
from anchormatrix.hosts.agents import Agents
from anchormatrix.hosts.bundle import agent_command
from anchormatrix.hosts.ssh.channel import AgentChannel
from anchormatrix.hosts.ssh.connection import Connection, connect
from anchormatrix.records.settings.things import SshSettings

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what it would say on stderr, our errors say

SILENCE_S = 30.0
"""After this long without a word from here the agent on the host stops what it supervises."""

_BEAT_S = 5.0


class SshAgents(Agents):
    """Agents behind a connection that is made again when it broke and is next needed; those it carried are lost."""

    def __init__(self, alias: str, ssh: SshSettings) -> None:
        super().__init__(alias)
        self._ssh = ssh
        self._connection: Connection | None = None
        self._serving: Connection | None = None
        self._end = threading.Event()
        # Both are needed soon; an interpreter there takes its time to start, so let them start side by side.
        self._service = self.another()
        self.put_back(self.another())
        threading.Thread(target=self._beat, daemon=True, name=f"beat-{alias}").start()

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.alive

    def wire(self) -> AgentChannel:
        greeting = secrets.token_hex(16)
        words, sources = agent_command(self._ssh.python, SILENCE_S, greeting[::-1])
        try:
            channel = self._transport().open_session(timeout=self._ssh.connect_timeout_s)
            channel.exec_command(f"exec {shlex.join(words)}")
            channel.sendall(sources)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise HostError(
                f"the connection was lost ({str(error) or type(error).__name__})",
                where=self._alias,
                todo="see that the host is reachable, then run again; what ran there is stopped gently by itself",
            ) from None
        return AgentChannel(channel, f"{greeting}\n".encode(), self._alias)

    def serving_transport(self) -> paramiko.Transport:
        """A second connection for the forwarded ports, so that no mishap on them can touch the agents."""
        with self._lock:
            if self._serving is None or not self._serving.alive:
                self._serving = connect(self._ssh)
            return self._serving.transport

    def close(self) -> None:
        """End the last agent and disconnect."""
        super().close()
        self._end.set()
        for connection in (self._serving, self._connection):
            if connection:
                connection.close()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._connection is None or not self._connection.alive:
                self._connection = connect(self._ssh)
                self._idle.clear()  # they were lost with the connection before
            return self._connection.transport

    def _beat(self) -> None:
        while not self._end.wait(_BEAT_S):
            for client in list(self._clients):
                client.beat()
