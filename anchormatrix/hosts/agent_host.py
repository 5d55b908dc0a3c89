"""A host on which supervision agents do everything, whether they run here or are reached over SSH.

An agent needs nothing but a Python: one serves commands and files, one more holds each lease and the server under it.
Commands and their environment travel as JSON over the agent's stdin, so that no shell has to be quoted for, and the
process list never shows an environment value.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchormatrix.config.secrets import masked, revealed_all, revealed_env
from anchormatrix.errors import HostError, LeaseError
from anchormatrix.hosts.agent import READ_LIMIT
from anchormatrix.hosts.agents import RELEASE_S, Agents
from anchormatrix.hosts.base import Completed, Lease, RunningProcess, StopRecord, SupervisedCommand
from anchormatrix.hosts.copying import Listing, fetch_files, parse_listing
from anchormatrix.hosts.failures import failed, hangs, held, missing_program, talks_too_much
from anchormatrix.hosts.supervision import (
    ANSWER_S,
    AgentClient,
    SupervisedProcess,
    complete_holder,
    start_under,
    stop_under,
)
from anchormatrix.records.settings.things import HostSettings

_FETCH_TRIES = 3


class AgentHost:
    """All of :class:`anchormatrix.hosts.base.Host` but its ports here.

    Relative entries of ``host.path`` and relative folders are below the home folder of the agents.
    """

    def __init__(self, settings: HostSettings, agents: Agents) -> None:
        self.alias = settings.alias
        self._settings = settings
        self._agents = agents
        self._scratch: list[str] = []
        self._leases: list[AgentLease] = []

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, check: bool = True
    ) -> Completed:
        begin = time.monotonic()
        answer = self._agents.service().ask(
            "run",
            argv=revealed_all(argv),
            env=revealed_env({**self._settings.env, **(env or {})}),
            path=list(self._settings.path),
            timeout_s=timeout_s,
            answer_s=timeout_s + ANSWER_S,
        )
        if answer.get("error") == "missing":
            raise missing_program(argv[0], self.alias, answer["path"])
        if answer.get("error") == "hangs":
            raise hangs(argv, timeout_s, self.alias)
        if answer.get("error") == "talks":
            raise talks_too_much(argv, self.alias)
        if "error" in answer:
            raise HostError(f"`{argv[0]}` could not be run: {answer['text']}", where=self.alias)
        out, err = (masked(base64.b64decode(answer[key]).decode("utf-8", "replace")) for key in ("out", "err"))
        done = Completed(tuple(argv), answer["code"], out, err, time.monotonic() - begin)
        if check and done.returncode:
            raise failed(done, self.alias)
        return done

    def lease(self, cards: Sequence[int], *, holder: Mapping[str, str], wait_s: float) -> AgentLease:
        client = self._agents.unused()
        wanted = sorted(set(cards))
        try:
            answer = client.ask(
                "lease",
                directory=self._settings.lease_dir,
                cards=wanted,
                holder=complete_holder(holder),
                wait_s=wait_s,
                answer_s=wait_s + ANSWER_S,
            )
        except BaseException:
            client.end(5)
            raise
        if "error" in answer:
            self._agents.put_back(client)
            if answer["error"] == "held":
                raise held(answer["card"], answer["holder"], self.alias, wait_s)
            what = f"the lease folder cannot be used ({answer['text']})"
            todo = "have what is in the way removed by its owner or root, or correct host.lease_dir"
            raise LeaseError(what, where=self.alias, todo=todo)
        suspect = tuple(card for card, bad in zip(wanted, answer["suspect"], strict=True) if bad)
        lease = AgentLease(tuple(wanted), suspect, client, self._agents)
        self._leases.append(lease)
        return lease

    def start(self, command: SupervisedCommand, *, lease: Lease) -> RunningProcess:
        assert isinstance(lease, AgentLease)
        env, path = self._settings.env, self._settings.path
        pid, token = start_under(lease.client, command, env=env, path=path, where=self.alias)

        def after_loss(grace_s: float) -> StopRecord | None:
            return self._stopped_after_loss(command, token, lease.cards, grace_s)

        process = SupervisedProcess(lease.client, pid, after_loss=after_loss, grace_s=command.grace_s)
        lease.processes.append(process)
        return process

    def own_pids(self) -> frozenset[int]:
        own: set[int] = set()
        for process in (process for lease in self._leases for process in lease.processes):
            with contextlib.suppress(HostError):
                own.update(process.tree())
        return frozenset(own)

    def read_from(self, path: str, offset: int) -> bytes:
        data = bytearray()
        while True:
            answer = self._agents.service().ask("read", file=path, offset=offset + len(data))
            if "error" in answer:
                raise HostError(f"cannot be read ({answer['text']})", where=f"{self.alias}:{path}")
            now = base64.b64decode(answer["data"])
            data += now
            if len(now) < READ_LIMIT:
                return bytes(data)

    def fetch(self, path: str, to: Path) -> None:
        for attempt in range(_FETCH_TRIES):
            client = self._agents.service()
            try:
                fetch_files(client, path, self._listing(path), to, self.alias)
                return
            except HostError:
                if not client.lost or attempt == _FETCH_TRIES - 1:
                    raise
                time.sleep(1)

    def free_port(self) -> int:
        return int(self._agents.service().ask("port")["port"])

    def scratch(self, name: str) -> str:
        script = 'mkdir -p -- "$1" && cd -- "$1" && mktemp -d "$PWD/$2-XXXXXX"'
        base = self._settings.scratch_dir.removeprefix("~/")  # commands start in the home folder
        argv = ("sh", "-c", script, "sh", base, name)
        try:
            folder = self.run(argv, timeout_s=self._settings.command_timeout_s).stdout.strip()
        except HostError as error:
            raise HostError(
                f"no scratch folder can be made ({error.what})",
                where=self.alias,
                todo="see the free space there, or correct host.scratch_dir",
            ) from None
        self._scratch.append(folder)
        return folder

    def holders(self) -> list[dict[str, object]]:
        answer = self._agents.service().ask("holders", directory=self._settings.lease_dir)
        if "error" in answer:
            raise HostError(f"leases cannot be read ({answer['text']})", where=self.alias)
        return list(answer["holders"])

    def close(self) -> None:
        if self._agents.closed:
            return
        for lease in self._leases:
            lease.release()
        self._agents.end_all_but_service()
        with contextlib.suppress(HostError):
            if self._scratch and self._agents.connected:
                self.run(("rm", "-rf", "--", *self._scratch), timeout_s=self._settings.command_timeout_s)
        self._agents.close()

    def _listing(self, path: str) -> Listing:
        argv = ("find", "-H", path, "-type", "f", "-printf", r"%s %T@ %P\0")
        done = self.run(argv, timeout_s=self._settings.command_timeout_s, check=False)
        if done.returncode:
            said = done.stderr.strip().rpartition(":")[2].strip()
            raise HostError(f"cannot be fetched ({said})", where=f"{self.alias}:{path}")
        return parse_listing(done.stdout, f"{self.alias}:{path}")

    def _stopped_after_loss(
        self, command: SupervisedCommand, token: str, cards: Sequence[int], grace_s: float
    ) -> StopRecord | None:
        """The agent of a server was killed: another one takes over what it left, and stops it."""
        client = self._agents.another()
        try:
            client.ask("adopt", token=token, directory=self._settings.lease_dir, cards=list(cards))
            return stop_under(client, grace_s)
        finally:
            client.end(20)


class AgentLease:
    """Locks held by an agent, and by the servers started under it."""

    def __init__(self, cards: tuple[int, ...], suspect: tuple[int, ...], client: AgentClient, agents: Agents) -> None:
        self.cards = cards
        self.suspect = suspect
        self.client = client
        self.processes: list[SupervisedProcess] = []
        self._agents = agents
        self._released = False

    def trust(self) -> None:
        self.client.ask("trust")
        self.suspect = ()

    def release(self) -> None:
        """Let the agent give the cards back; one that is out of reach does so by itself."""
        if self._released:
            return
        self._released = True
        for process in self.processes:
            process.end()
        try:
            over = self.client.ask("release", answer_s=RELEASE_S)["over"]
        except HostError:
            over = False
        if over:
            self._agents.put_back(self.client)
        else:
            self.client.end(RELEASE_S)

    def __enter__(self) -> AgentLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
