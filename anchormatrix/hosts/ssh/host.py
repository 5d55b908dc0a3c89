"""A host reached over SSH; see :class:`anchormatrix.hosts.base.Host`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence

from anchormatrix.errors import HostError
from anchormatrix.hosts.agent import RECORD_SUFFIX
from anchormatrix.hosts.agent_host import AgentHost
from anchormatrix.hosts.base import StopRecord, SupervisedCommand
from anchormatrix.hosts.ssh.agents import SILENCE_S, SshAgents
from anchormatrix.hosts.ssh.forwarding import Forward
from anchormatrix.hosts.supervision import stop_record
from anchormatrix.records.settings.things import HostSettings


class SshHost(AgentHost):
    """Runs commands on another machine.

    The connection is made again when it broke, except for what ran under it: that is stopped by its agent, within
    ``SILENCE_S`` and the grace it was started with.
    """

    _agents: SshAgents

    def __init__(self, settings: HostSettings) -> None:
        if not settings.ssh:
            raise HostError("has no ssh section", where=f"host {settings.alias}", todo="add host.ssh.host")
        super().__init__(settings, SshAgents(settings.alias, settings.ssh))
        self._forwards: dict[int, Forward] = {}

    def local_port(self, port: int) -> int:
        forward = self._forwards.get(port)
        if forward is None:
            forward = self._forwards[port] = Forward(self._agents.serving_transport, port)
        return forward.local_port

    def close(self) -> None:
        super().close()
        for forward in self._forwards.values():
            forward.close()
        self._forwards = {}

    def _stopped_after_loss(
        self, command: SupervisedCommand, token: str, cards: Sequence[int], grace_s: float
    ) -> StopRecord | None:
        if self._agents.connected:
            return super()._stopped_after_loss(command, token, cards, grace_s)
        return self._record_of_watchdog(command.log_path, max(grace_s, command.grace_s))

    def _record_of_watchdog(self, log_path: str, grace_s: float) -> StopRecord | None:
        """The connection broke: wait until the agent there has stopped the server, and read how."""
        deadline = time.monotonic() + SILENCE_S + grace_s + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(HostError, ValueError, KeyError):
                return stop_record(json.loads(self.read_from(log_path + RECORD_SUFFIX, 0)))
            time.sleep(0.5)
        return None
