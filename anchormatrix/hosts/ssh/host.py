"""A host reached over SSH; see :class:`anchormatrix.hosts.base.Host`.

Everything there is done by supervision agents, which need nothing but a Python: one serves commands and files, one more
holds each lease and the server under it. Commands and their environment travel as JSON over the agent's stdin, so that
no shell there has to be quoted for, and the process list never shows an environment value.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchormatrix.errors import HostError, LeaseError
from anchormatrix.hosts.agent import READ_LIMIT, RECORD_SUFFIX
from anchormatrix.hosts.base import Completed, Lease, RunningProcess, StopRecord, SupervisedCommand
from anchormatrix.hosts.failures import failed, hangs, held, missing_program, talks_too_much
from anchormatrix.hosts.ssh.agents import RELEASE_S, SILENCE_S, Agents
from anchormatrix.hosts.ssh.copying import Listing, fetch_files, parse_listing
from anchormatrix.hosts.ssh.forwarding import Forward
from anchormatrix.hosts.supervision import (
    ANSWER_S,
    AgentClient,
    SupervisedProcess,
    complete_holder,
    start_under,
    stop_record,
    stop_under,
)
from anchormatrix.records.settings.things import HostSettings

_FETCH_TRIES = 3


class SshHost:
    """Runs commands on another machine.

    Relative entries of ``host.path`` and relative folders are below the home folder there. The connection is made
    again when it broke, except for what ran under it: that is stopped by its agent, within ``SILENCE_S`` and the
    grace it was started with.
    """

    def __init__(self, settings: HostSettings) -> None:
        if not settings.ssh:
            raise HostError("has no ssh section", where=f"host {settings.alias}", todo="add host.ssh.host")
        self.alias = settings.alias
        self._settings = settings
        self._scratch: list[str] = []
        self._leases: list[SshLease] = []
        self._processes: list[SupervisedProcess] = []
        self._forwards: dict[int, Forward] = {}
        self._agents = Agents(settings.alias, settings.ssh)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, check: bool = True
    ) -> Completed:
        begin = time.monotonic()
        answer = self._agents.service().ask(
            "run",
            argv=list(argv),
            env={**self._settings.env, **(env or {})},
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
        out, err = (base64.b64decode(answer[key]).decode("utf-8", "replace") for key in ("out", "err"))
        done = Completed(tuple(argv), answer["code"], out, err, time.monotonic() - begin)
        if check and done.returncode:
            raise failed(done, self.alias)
        return done

    def lease(self, cards: Sequence[int], *, holder: Mapping[str, str], wait_s: float) -> SshLease:
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
            if answer.get("error") == "held":
                raise held(answer["card"], answer["holder"], self.alias, wait_s)
            if "error" in answer:
                raise LeaseError(
                    f"the lease folder cannot be used ({answer['text']})",
                    where=self.alias,
                    todo="correct host.lease_dir",
                )
        except BaseException:
            client.end(5)
            raise
        lease = SshLease(
            tuple(card for card, bad in zip(wanted, answer["suspect"], strict=True) if bad), wanted, client
        )
        self._leases.append(lease)
        return lease

    def start(self, command: SupervisedCommand, *, lease: Lease | None = None) -> RunningProcess:
        own = not isinstance(lease, SshLease)
        client = lease.client if isinstance(lease, SshLease) else self._agents.unused()
        env, path = self._settings.env, self._settings.path
        try:
            pid, token = start_under(client, command, env=env, path=path, where=self.alias)
        except BaseException:
            if own:
                client.end(5)
            raise

        def after_loss(grace: float) -> StopRecord | None:
            if self._agents.connected:
                return self._stopped_by_another(token, grace)
            return self._record_of_watchdog(command.log_path, max(grace, command.grace_s))

        process = SupervisedProcess(client, pid, after_loss=after_loss, ends_agent=own, grace_s=command.grace_s)
        self._processes.append(process)
        return process

    def own_pids(self) -> frozenset[int]:
        own: set[int] = set()
        for process in self._processes:
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

    def local_port(self, port: int) -> int:
        forward = self._forwards.get(port)
        if forward is None:
            forward = self._forwards[port] = Forward(self._agents.serving_transport, port)
        return forward.local_port

    def scratch(self, name: str) -> str:
        script = 'mkdir -p -- "$1" && cd -- "$1" && mktemp -d "$PWD/$2-XXXXXX"'
        argv = ("sh", "-c", script, "sh", _below_home(self._settings.scratch_dir), name)
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
        for forward in self._forwards.values():
            forward.close()
        with contextlib.suppress(HostError):
            if self._scratch and self._agents.connected:
                self.run(("rm", "-rf", "--", *self._scratch), timeout_s=self._settings.command_timeout_s)
        self._agents.close()

    def _listing(self, path: str) -> Listing:
        argv = ("find", path, "-type", "f", "-printf", r"%s %T@ %P\0")
        done = self.run(argv, timeout_s=self._settings.command_timeout_s, check=False)
        if done.returncode:
            said = done.stderr.strip().rpartition(":")[2].strip()
            raise HostError(f"cannot be fetched ({said})", where=f"{self.alias}:{path}")
        return parse_listing(done.stdout, f"{self.alias}:{path}")

    # --- what becomes of a server whose agent we lost ----------------------------------------------------------------

    def _stopped_by_another(self, token: str, grace_s: float) -> StopRecord:
        """The agent was killed: another one takes over what it left."""
        client = self._agents.another()
        try:
            client.ask("adopt", token=token)
            return stop_under(client, grace_s)
        finally:
            client.end(20)

    def _record_of_watchdog(self, log_path: str, grace_s: float) -> StopRecord | None:
        """The connection broke: wait until the agent there has stopped the server, and read how."""
        deadline = time.monotonic() + SILENCE_S + grace_s + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(HostError, ValueError, KeyError):
                return stop_record(json.loads(self.read_from(log_path + RECORD_SUFFIX, 0)))
            time.sleep(0.5)
        return None


class SshLease:
    """Locks held by an agent on the host."""

    def __init__(self, suspect: tuple[int, ...], cards: Sequence[int], client: AgentClient) -> None:
        self.cards = tuple(cards)
        self.suspect = suspect
        self.client = client

    def trust(self) -> None:
        self.client.ask("trust")
        self.suspect = ()

    def release(self) -> None:
        """End the agent; when it is out of reach, it gives the cards back by itself."""
        self.client.end(RELEASE_S)

    def __enter__(self) -> SshLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _below_home(path: str) -> str:
    """``~/x`` and ``x`` are both below the home folder, where commands start."""
    return path.removeprefix("~/")
