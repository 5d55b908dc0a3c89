"""``torchrun … -m lightx2v.server``: the virtual host's rank processes and timing behind LightX2V's routes and log."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import scenario_from_environment
from virtualhost.host.state import HostState, StateError
from virtualhost.host.strict import ScenarioError
from virtualhost.lightx2v.arguments import Configured, parse
from virtualhost.lightx2v.http_api import TaskApi
from virtualhost.lightx2v.session import LightX2VSession
from virtualhost.server.arguments import LaunchError
from virtualhost.server.http_api import Api
from virtualhost.server.main import SIGNALS, Server


class LightX2VServer(Server):
    """One running server."""

    def __init__(self, configured: Configured, scenario: Scenario, state: HostState) -> None:
        self._lightx2v = LightX2VSession(scenario, configured, state)
        super().__init__(configured.launch, scenario, state, self._lightx2v)

    def bound(self) -> Api:
        """The routes, at their address. Raises OSError when it is taken."""
        steps = int(self._lightx2v.values.get("infer_steps", 5))
        address = (self.launch.host, self.launch.port)
        return TaskApi(address, self, guidance=self._lightx2v.guidance, steps=steps)


def main(arguments: Sequence[str]) -> int:
    """``torchrun``; returns the exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        state = HostState.from_environment()
        scenario = scenario_from_environment(state.override_path)
    except (ScenarioError, StateError) as error:
        print(f"torchrun: {error}", file=sys.stderr)
        return 2
    try:
        configured = parse(arguments, scenario, os.environ)
    except LaunchError as error:
        print(f"Rank 0 initialization failed: {error}", file=sys.stderr)  # server/services/inference/worker.py:65
        return 1
    return LightX2VServer(configured, scenario, state).run()
