"""The supervision agents on a host reached over SSH, and the connections they run over."""

from __future__ import annotations

import logging
import shlex
import threading

import paramiko

from anchormatrix.errors import HostError
from anchormatrix.hosts.bundle import agent_command
from anchormatrix.hosts.ssh.channel import AgentChannel
from anchormatrix.hosts.ssh.connection import Connection, connect
from anchormatrix.hosts.supervision import ANSWER_S, AgentClient
from anchormatrix.records.settings.things import SshSettings

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # what it would say on stderr, our errors say

SILENCE_S = 30.0
"""After this long without a word from here the agent on the host stops what it supervises."""

RELEASE_S = 180.0
"""How long an agent may take to stop what it supervises and to give cards back."""

_BEAT_S = 5.0


class Agents:
    """One agent for commands and files, and as many more as there are leases and servers.

    A broken connection is made again when it is next needed; the agents that ran over it are lost.
    """

    def __init__(self, alias: str, ssh: SshSettings) -> None:
        self._alias = alias
        self._ssh = ssh
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._serving: Connection | None = None
        self._clients: list[AgentClient] = []
        self._closed = threading.Event()
        # Both are needed soon; an interpreter there takes its time to start, so let them start side by side.
        self._served = self.another()
        self._spare: AgentClient | None = self.another()
        threading.Thread(target=self._beat, daemon=True, name=f"beat-{alias}").start()

    @property
    def connected(self) -> bool:
        """Whether the connection that agents run over stands."""
        return self._connection is not None and self._connection.alive

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed.is_set()

    def service(self) -> AgentClient:
        """The agent for commands and files; another one when the last was lost."""
        with self._lock:
            if self._served.lost or not self.connected:
                self._served = self.another()
            return self._served

    def unused(self) -> AgentClient:
        """An agent that supervises nothing yet."""
        with self._lock:
            client, self._spare = self._spare, None
            return client if client is not None and self.connected else self.another()

    def another(self) -> AgentClient:
        """Start one more agent. Raises :class:`HostError` when the host cannot be reached."""
        words, sources = agent_command(self._ssh.python, "--silence", str(SILENCE_S))
        try:
            channel = self._transport().open_session(timeout=self._ssh.connect_timeout_s)
            channel.exec_command(f"exec {shlex.join(words)}")
            channel.sendall(sources)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._lost(error) from None
        client = AgentClient(AgentChannel(channel), self._alias)
        self._clients.append(client)
        return client

    def serving_transport(self) -> paramiko.Transport:
        """A second connection for the forwarded ports, so that no mishap on them can touch the agents."""
        with self._lock:
            if self._serving is None or not self._serving.alive:
                self._serving = connect(self._ssh)
            return self._serving.transport

    def end_all_but_service(self) -> None:
        """Let every agent but the one for commands and files stop what it supervises and end."""
        for client in self._clients:
            if client is not self._served:
                client.end(RELEASE_S)

    def close(self) -> None:
        """End the last agent and disconnect."""
        self._served.end(ANSWER_S)
        self._closed.set()
        for connection in (self._serving, self._connection):
            if connection:
                connection.close()

    def _transport(self) -> paramiko.Transport:
        with self._lock:
            if self._connection is None or not self._connection.alive:
                self._connection = connect(self._ssh)
            return self._connection.transport

    def _lost(self, error: Exception) -> HostError:
        return HostError(
            f"the connection was lost ({str(error) or type(error).__name__})",
            where=self._alias,
            todo="see that the host is reachable, then run again; what ran there is stopped gently by itself",
        )

    def _beat(self) -> None:
        while not self._closed.wait(_BEAT_S):
            for client in list(self._clients):
                client.beat()
