"""The local host: commands and servers on this machine, under agents that are its children."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from anchormatrix.config.project import in_project, project_folder
from anchormatrix.hosts import processes
from anchormatrix.hosts.agent_host import AgentHost
from anchormatrix.hosts.agents import Agents
from anchormatrix.hosts.base import Lease, RunningProcess, SupervisedCommand
from anchormatrix.hosts.bundle import agent_command
from anchormatrix.hosts.pipes import AgentPipes
from anchormatrix.records.settings.things import HostSettings


class LocalHost(AgentHost):
    """Runs commands on this machine; see :class:`anchormatrix.hosts.base.Host`.

    Commands run in the project's folder, and relative paths of the configuration are below it.
    """

    def __init__(self, settings: HostSettings) -> None:
        here = msgspec.structs.replace(
            settings,
            path=tuple(str(in_project(entry)) for entry in settings.path),
            lease_dir=str(in_project(settings.lease_dir)),
            scratch_dir=str(in_project(settings.scratch_dir)),
        )
        super().__init__(here, _LocalAgents(settings.alias))

    def start(self, command: SupervisedCommand, *, lease: Lease) -> RunningProcess:
        return super().start(replace(command, log_path=str(Path(command.log_path).absolute())), lease=lease)

    def own_pids(self) -> frozenset[int]:
        table = processes.visible()
        here = os.getpid()
        own = {here} | processes.descendants(table, {here})
        above = table.get(here)
        while above is not None and above.parent > 1:
            own.add(above.parent)
            above = table.get(above.parent)
        return super().own_pids() | own

    def local_port(self, port: int) -> int:
        return port


class _LocalAgents(Agents):
    def wire(self) -> AgentPipes:
        words, sources = agent_command(sys.executable)
        pipes = AgentPipes(words, project_folder())
        pipes.send(sources)
        return pipes
