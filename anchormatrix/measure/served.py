"""A server under measurement: started, awaited, asked one request at a time, watched by its log, always stopped."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType

from anchormatrix.config.secrets import masked
from anchormatrix.engines.base import ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.logs.lines import plain_lines
from anchormatrix.engines.timing import Request, ServeLog
from anchormatrix.errors import AnchorMatrixError, HostError
from anchormatrix.hosts.base import Host, Lease, RunningProcess, StopRecord, SupervisedCommand
from anchormatrix.measure.causes import failure_of, first_errors, known_failure
from anchormatrix.measure.rig import Rig
from anchormatrix.records.requests import RequestStatus, Role
from anchormatrix.records.session import Failure, Stop

_POLL_MIN_S, _POLL_MAX_S = 0.03, 0.5
_FATAL_GRACE_S = 2.0  # a server that logged a fatal cause gets this long to end by itself
_LOG_LATE_S = 1.0  # lines of other ranks may follow the response
_LOST_AFTER_S = 10.0  # at least this long after whole timing an answer is given up
_LAST_LINES, _TAIL_CHARS = 3, 20_000
_KILLED = (-9, 137)  # as a signal, and as a shell or container reports it
_WRITE = 'printf %s "$2" > "$1"'  # a shell's own printf: a text of any length that fits a command


class DidNotRunError(AnchorMatrixError):
    """A form did not run through: why, ``evidence`` from its log, and whether its main process was ``killed``."""

    def __init__(self, what: str, failure: Failure, *, evidence: tuple[str, ...] = (), killed: bool = False) -> None:
        super().__init__(f"{what}: {failure.words}")
        self.failure = failure
        self.evidence = evidence
        self.killed = killed or failure.id == "killed"


@dataclass(frozen=True)
class Sent:
    """A request as the client saw it. ``sent_s`` counts from the start of the session."""

    role: Role
    tier: str
    sent_s: float
    response: Response

    @property
    def steps(self) -> int:
        """How many steps it asked for."""
        return self.response.steps


class Served:
    """A context manager round one server; ``stopped`` says afterwards how it ended.

    ``untimed`` counts the latest requests in a row without a whole timing. Entering raises :class:`DidNotRunError` when
    the server does not become ready: it is then stopped already.
    """

    def __init__(
        self,
        rig: Rig,
        make_command: Callable[[int], ServeCommand],
        *,
        lease: Lease,
        log_path: str,
    ) -> None:
        self._host, self._settings, self._engine, self._lease = rig.host, rig.settings, rig.engine, lease
        self._make_command, self._log_path = make_command, log_path
        self._process: RunningProcess | None = None
        self._client: Client | None = None
        self._log = bytearray()
        self._begun = time.monotonic()
        self._bad_in_a_row = 0
        self.untimed = 0
        self.command = ServeCommand((), {})
        self.sent: list[Sent] = []
        self.stopped: StopRecord | None = None

    def __enter__(self) -> Served:
        try:
            self._start()
            self._await_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def client(self) -> Client:
        """The client of the running server."""
        assert self._client is not None, "the server was not entered"
        return self._client

    @property
    def peaks_mb(self) -> list[float | None]:
        """The device memory that each answer told of."""
        return [sent.response.peak_memory_mb for sent in self.sent]

    def kept(self, role: Role, tier: str) -> tuple[int, Response] | None:
        """The first answer of a kind that brought an output, and the request's number from 1."""
        for number, sent in enumerate(self.sent, 1):
            if (sent.role, sent.tier) == (role, tier) and sent.response.content:
                return number, sent.response
        return None

    def log_text(self) -> str:
        """The log as far as it has been written, without the secrets that a server may have told in it."""
        try:
            self._log += self._host.read_from(self._log_path, len(self._log))
        except HostError:
            if self._process is None:
                return ""
            raise
        return masked(self._log.decode("utf-8", "replace"))

    def log(self) -> ServeLog:
        """What the log and the answers tell so far."""
        return self._engine.read(self.log_text(), [sent.response for sent in self.sent])

    def ask(self, role: Role, tier: str, steps: int) -> Request | None:
        """Send one request and return what the log timed of it; ``None`` when it timed nothing whole.

        Raises :class:`DidNotRunError` when the server died or hangs, or failed two requests in a row.
        """
        index, sent_s = len(self.sent), time.monotonic() - self._begun
        response = self._respond(index, steps)
        if self.kept(role, tier):  # one output of a kind is enough to look at
            response = replace(response, content=b"")
        self.sent.append(Sent(role, tier, sent_s, response))
        request = self._timed(index)
        self.untimed = 0 if request is not None else self.untimed + 1
        failed = response.status is RequestStatus.ERROR or (response.status is RequestStatus.LOST and request is None)
        if failed:
            self._fail_if_dead(index)
        self._bad_in_a_row = self._bad_in_a_row + 1 if failed else 0
        if self._bad_in_a_row > 1:
            raise self._did_not_run(f"request {index + 1} failed: {response.error or 'no answer'}")
        return request

    def _start(self) -> None:
        port = self._host.free_port()
        directory = posixpath.dirname(self._log_path)
        self.command = self._make_command(port).placed(directory)
        write_files(self._host, directory, self.command.files, self._settings.host.command_timeout_s)
        engine = self._settings.engine
        supervised = SupervisedCommand(
            self.command.argv,
            self._log_path,
            env=self.command.env,
            grace_s=engine.stop_grace_s,
            stop_command=[word.replace("{port}", str(port)) for word in engine.stop_command],
        )
        self._process = self._host.start(supervised, lease=self._lease)
        files = ServerFiles(directory, lambda path: self._host.read_from(path, 0))
        self._client = self._engine.client(f"http://127.0.0.1:{self._host.local_port(port)}", files)

    def _await_ready(self) -> None:
        """Poll readiness; a cause in the log or the end of the process ends the wait, not only the time-out."""
        limit_s = self._settings.engine.ready_timeout_s
        deadline, pause_s, fatal_since = time.monotonic() + limit_s, _POLL_MIN_S, None
        while not self.client.ready():
            failure = known_failure(self.log_text())
            if failure and fatal_since is None:
                fatal_since = time.monotonic()
            if self._exited():
                raise self._did_not_run("the server ended before it was ready")
            if failure and fatal_since is not None and time.monotonic() - fatal_since > _FATAL_GRACE_S:
                raise self._did_not_run("the server cannot become ready")
            if time.monotonic() > deadline:
                raise self._did_not_run(f"the server was not ready after {limit_s:g} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _POLL_MAX_S)

    def _respond(self, index: int, steps: int) -> Response:
        """Wait for the answer in a thread, so that a dead server or a lost answer is noticed in the log meanwhile."""
        box: list[Response] = []
        thread = threading.Thread(target=lambda: box.append(self.client.generate(steps)), daemon=True)
        begun, timed_since = time.monotonic(), None
        thread.start()
        thread.join(1.0)
        while thread.is_alive():
            request = self._request(self.log(), index)
            if request is not None and timed_since is None:
                timed_since = time.monotonic()
            patience_s = max(_LOST_AFTER_S, 2 * (timed_since - begun)) if timed_since is not None else 0.0
            if timed_since is not None and time.monotonic() - timed_since > patience_s:
                why = "timed whole by the server, but no answer came"
                return Response(RequestStatus.LOST, time.monotonic() - begun, error=why, steps=steps)
            if self._exited():
                thread.join(2.0)
                break
            thread.join(_POLL_MAX_S)
        if box:
            return box[0]
        return Response(RequestStatus.LOST, time.monotonic() - begun, error="the server ended", steps=steps)

    def _timed(self, index: int) -> Request | None:
        """The log's view of a request, once all ranks wrote theirs or no more lines come."""
        deadline, pause_s = time.monotonic() + _LOG_LATE_S, _POLL_MIN_S
        while True:
            log = self.log()
            request = self._request(log, index)
            if request is not None and (len(request.ranks) >= len(log.ranks) or request.notes):
                return request
            silent = index > 0 and not log.stage_lines
            if silent or time.monotonic() > deadline or (self._exited() and request is None):
                return request
            time.sleep(pause_s)
            pause_s *= 2

    @staticmethod
    def _request(log: ServeLog, index: int) -> Request | None:
        request = log.requests[index] if len(log.requests) > index else None
        return request if request is not None and request.diffuse_s is not None else None

    def _exited(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _fail_if_dead(self, index: int) -> None:
        for _ in range(10):
            if self._exited():
                raise self._did_not_run(f"the server died in request {index + 1}")
            time.sleep(0.1)
        if not self.client.ready():  # it hangs, or it answers for ranks that are gone
            ended = "hangs" if self.sent[-1].response.status is RequestStatus.LOST else "ended its ranks"
            raise self._did_not_run(f"request {index + 1} {ended}: {self.sent[-1].response.error}")

    def _did_not_run(self, what: str) -> DidNotRunError:
        text = self.log_text()
        code = self._process.poll() if self._process else None
        return DidNotRunError(what, failure_of(text, code), evidence=evidence(text), killed=code in _KILLED)

    def _stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None and self.stopped is None:
            self.stopped = self._process.stop(grace_s=self._settings.engine.stop_grace_s)


def write_files(host: Host, directory: str, files: Mapping[str, str], timeout_s: float) -> None:
    """Write texts into files of a directory on a host. Raises :class:`HostError` when one cannot be written."""
    for name, text in files.items():
        host.run(("sh", "-c", _WRITE, "sh", posixpath.join(directory, name), text), timeout_s=timeout_s)


def evidence(text: str) -> tuple[str, ...]:
    """The first error of each rank, then the log's last lines, printable and cut to length."""
    lines = [line.strip() for line in plain_lines(text[-_TAIL_CHARS:]) if line.strip()]
    last = ("".join(c if c.isprintable() else " " for c in line)[:400] for line in lines[-_LAST_LINES:])
    return tuple(dict.fromkeys((*first_errors(text), *last)))


def stop_of(stopped: StopRecord | None) -> Stop:
    """How a server ended, as result files hold it."""
    if stopped is None:
        return Stop()
    return Stop(stopped.how, round(stopped.seconds, 3), stopped.exit_code, stopped.survivors)
