"""The supervision agents of a host: one for commands and files, and one for each lease."""

from __future__ import annotations

import threading

from anchormatrix.hosts.supervision import ANSWER_S, AgentClient, Wire

RELEASE_S = 180.0
"""How long an agent may take to stop what it supervises and to give cards back."""


class Agents:
    """Starts agents when they are needed; one that has given its cards back serves again."""

    def __init__(self, alias: str) -> None:
        self.closed = False
        self._alias = alias
        self._lock = threading.RLock()
        self._clients: list[AgentClient] = []
        self._idle: list[AgentClient] = []
        self._service: AgentClient | None = None

    @property
    def connected(self) -> bool:
        """Whether the agents that were started can be reached."""
        return True

    def wire(self) -> Wire:
        """The two ends of an agent started now. Raises :class:`HostError` when the host cannot be reached."""
        raise NotImplementedError

    def service(self) -> AgentClient:
        """The agent for commands and files; another one when the last was lost."""
        with self._lock:
            if self._service is None or self._service.lost or not self.connected:
                self._service = self.another()
            return self._service

    def unused(self) -> AgentClient:
        """An agent that supervises nothing."""
        with self._lock:
            return self._idle.pop() if self._idle and self.connected else self.another()

    def put_back(self, client: AgentClient) -> None:
        """An agent supervises nothing any more."""
        with self._lock:
            self._idle.append(client)

    def another(self) -> AgentClient:
        """Start one more agent. Raises :class:`HostError` when the host cannot be reached."""
        client = AgentClient(self.wire(), self._alias)
        self._clients.append(client)
        return client

    def end_all_but_service(self) -> None:
        """Let every agent but the one for commands and files stop what it supervises and end."""
        for client in self._clients:
            if client is not self._service:
                client.end(RELEASE_S)

    def close(self) -> None:
        """End the last agent."""
        if self._service:
            self._service.end(ANSWER_S)
        self.closed = True
