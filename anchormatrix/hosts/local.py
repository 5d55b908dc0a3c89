"""The local host: how commands run and servers are supervised on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anchormatrix.config.project import in_project, project_folder
from anchormatrix.errors import HostError, LeaseError
from anchormatrix.hosts import locks, processes
from anchormatrix.hosts.base import Completed, Lease, RunningProcess, StopRecord, SupervisedCommand
from anchormatrix.hosts.bundle import agent_command
from anchormatrix.hosts.copying import copied_file, copied_tree
from anchormatrix.hosts.failures import failed, hangs, held, missing_program, talks_too_much
from anchormatrix.hosts.pipes import AgentPipes
from anchormatrix.hosts.supervision import (
    AgentClient,
    SupervisedProcess,
    complete_holder,
    start_under,
    stop_under,
)
from anchormatrix.records.settings.things import HostSettings

_PRCTL = ctypes.CDLL(None).prctl
_PARENT_DEATH = 1
_TERM_WAIT_S, _KILL_WAIT_S = 2.0, 2.0
_RELEASE_S = 180.0
_LOOK_S = 0.1


class LocalHost:
    """Runs commands on this machine; see :class:`anchormatrix.hosts.base.Host`.

    Commands run in the project's folder, and relative paths of the configuration are below it.
    """

    def __init__(self, settings: HostSettings) -> None:
        self.alias = settings.alias
        self._settings = settings
        self._path = [str(in_project(entry)) for entry in settings.path]
        self._lease_dir = str(in_project(settings.lease_dir))
        self._scratch: list[Path] = []
        self._leases: list[LocalLease] = []
        self._processes: list[SupervisedProcess] = []

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, check: bool = True
    ) -> Completed:
        begin = time.monotonic()
        complete = self._environment(env or {})
        with os.fdopen(os.memfd_create("out"), "w+b") as out, os.fdopen(os.memfd_create("err"), "w+b") as err:
            # Files and not pipes: a grandchild that keeps a pipe open must not keep us waiting.
            try:
                child = subprocess.Popen(
                    list(argv),
                    cwd=project_folder(),
                    env=complete,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509  calls one function that takes no lock
                )
            except FileNotFoundError:
                raise missing_program(argv[0], self.alias, complete["PATH"]) from None
            except OSError as error:
                raise HostError(f"`{argv[0]}` could not be started: {error.strerror}", where=self.alias) from None
            try:
                if not _ended(child, begin + timeout_s, (out.fileno(), err.fileno())):
                    raise hangs(argv, timeout_s, self.alias)
            finally:
                _end_group(child)
            if processes.too_much((out.fileno(), err.fileno())):
                raise talks_too_much(argv, self.alias)
            out.seek(0)
            err.seek(0)
            done = Completed(
                tuple(argv),
                child.returncode,
                out.read().decode("utf-8", "replace"),
                err.read().decode("utf-8", "replace"),
                time.monotonic() - begin,
            )
        if check and done.returncode:
            raise failed(done, self.alias)
        return done

    def lease(self, cards: Sequence[int], *, holder: Mapping[str, str], wait_s: float) -> LocalLease:
        said: dict[str, Any] = complete_holder(holder)
        try:
            files = locks.take(self._lease_dir, cards, said, wait_s, time.sleep)
        except locks.HeldError as error:
            raise held(error.card, error.holder, self.alias, wait_s) from None
        except OSError as error:
            raise LeaseError(
                f"the lease folder cannot be used ({error})", where=self.alias, todo="correct host.lease_dir"
            ) from None
        lease = LocalLease(tuple(sorted(set(cards))), files)
        self._leases.append(lease)
        return lease

    def start(self, command: SupervisedCommand, *, lease: Lease | None = None) -> RunningProcess:
        files = lease.files if isinstance(lease, LocalLease) else []
        client = self._agent(files)
        here = replace(command, log_path=str(Path(command.log_path).absolute()))
        try:
            pid, token = start_under(client, here, env=self._settings.env, path=self._path, where=self.alias)
        except BaseException:
            client.end(_RELEASE_S)
            raise

        def after_loss(grace: float) -> StopRecord:
            other = self._agent(files)
            try:
                other.ask("adopt", token=token)
                return stop_under(other, grace)
            finally:
                other.end(_RELEASE_S)

        process = SupervisedProcess(client, pid, after_loss=after_loss, ends_agent=True, grace_s=command.grace_s)
        self._processes.append(process)
        if isinstance(lease, LocalLease):
            lease.processes.append(process)
        return process

    def own_pids(self) -> frozenset[int]:
        table = processes.visible()
        here = os.getpid()
        own = {here} | processes.descendants(table, {here})
        above = table.get(here)
        while above is not None and above.parent > 1:
            own.add(above.parent)
            above = table.get(above.parent)
        for process in self._processes:
            with contextlib.suppress(HostError):
                own.update(process.tree())
        return frozenset(own)

    def read_from(self, path: str, offset: int) -> bytes:
        try:
            with Path(path).open("rb") as stream:
                stream.seek(offset)
                return stream.read()
        except OSError as error:
            raise HostError(f"cannot be read ({error.strerror})", where=f"{self.alias}:{path}") from None

    def fetch(self, path: str, to: Path) -> None:
        origin = Path(path)
        try:
            if origin.is_dir():
                copied_tree(origin, to)
            elif origin.absolute() != to.absolute():
                copied_file(origin, to)
        except OSError as error:
            raise HostError(
                f"cannot be copied to {to} ({error.strerror})", where=f"{self.alias}:{path}", todo="see the free space"
            ) from None

    def free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def local_port(self, port: int) -> int:
        return port

    def scratch(self, name: str) -> str:
        base = in_project(self._settings.scratch_dir)
        try:
            base.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        except OSError as error:
            raise HostError(
                f"no scratch folder can be made ({error})", where=self.alias, todo="correct host.scratch_dir"
            ) from None
        self._scratch.append(folder)
        return str(folder)

    def holders(self) -> list[dict[str, object]]:
        try:
            return list(locks.holders(self._lease_dir))
        except OSError as error:
            raise HostError(f"leases cannot be read ({error})", where=self.alias) from None

    def close(self) -> None:
        for process in self._processes:
            process.end()
        for lease in self._leases:
            lease.release()
        for folder in self._scratch:
            shutil.rmtree(folder, ignore_errors=True)
        self._processes, self._leases, self._scratch = [], [], []

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        complete = {**os.environ, **self._settings.env, **env}
        complete["PATH"] = os.pathsep.join([*self._path, complete.get("PATH", os.defpath)])
        return complete

    def _agent(self, files: Sequence[int]) -> AgentClient:
        words, sources = agent_command(sys.executable, "--keep", ",".join(map(str, files)))
        pipes = AgentPipes(words, project_folder(), files)
        pipes.send(sources)
        return AgentClient(pipes, self.alias)


class LocalLease:
    """Locks held by this process, and by the agents and servers started under it."""

    def __init__(self, cards: tuple[int, ...], files: list[int]) -> None:
        self.cards = cards
        self.suspect = tuple(card for card, file in zip(cards, files, strict=True) if locks.suspect_since(file))
        self.files = files
        self.processes: list[SupervisedProcess] = []

    def trust(self) -> None:
        locks.mark(self.files, None)
        self.suspect = ()

    def release(self) -> None:
        files, self.files = self.files, []
        if not files:
            return
        records = [process.end() for process in self.processes]
        stuck = any(record is None or record.survivors for record in records)
        locks.give_back(files, clear=not stuck)

    def __enter__(self) -> LocalLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _end_with_parent() -> None:
    _PRCTL(_PARENT_DEATH, signal.SIGTERM, 0, 0, 0)


def _ended(child: subprocess.Popen[bytes], deadline: float, files: Sequence[int]) -> bool:
    """Wait until a command ends or prints too much; False when neither happens in time."""
    while not processes.too_much(files):
        try:
            child.wait(max(0.0, min(deadline - time.monotonic(), _LOOK_S)))
            return True
        except subprocess.TimeoutExpired:
            if time.monotonic() >= deadline:
                return False
    return True


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a command: ask, wait, kill. A process stuck in the kernel is not waited for."""
    if child.returncode is not None:
        return
    for number, wait_s in ((signal.SIGTERM, _TERM_WAIT_S), (signal.SIGKILL, _KILL_WAIT_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
            return
