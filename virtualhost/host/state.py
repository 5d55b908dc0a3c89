"""The state that outlives a process of the virtual host: running jobs, residue on cards, counters, the virtual clock.

Everything lies in one directory (``VIRTUALHOST_STATE``): ``state.json`` (counters, residue, clock), ``jobs/<pid>.json``
(one file per running server, removed by a clean stop) and, if a test wants to change the host while it runs,
``override.yaml``. Every change is made under one file lock, so servers and tools may run side by side.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1


class StateError(Exception):
    """The state directory cannot be used; the message says what to do."""


def process_start(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot, or None when there is no such process.

    A pid alone may have been given to another process since; pid and start time together name one process for ever.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class RankProcess:
    """One rank of a running server: its process, the card it sits on and the device memory it holds there."""

    pid: int
    start: int
    card: int
    memory_mb: int


@dataclass(frozen=True)
class Job:
    """A running server: its main process, its cards, and its rank processes. ``session`` counts starts on this host."""

    pid: int
    start: int
    cards: tuple[int, ...]
    form: str
    session: int
    ranks: tuple[RankProcess, ...] = ()

    def alive(self) -> bool:
        """Whether the main process still is the one that registered the job."""
        return process_start(self.pid) == self.start


@dataclass(frozen=True)
class SessionNumbers:
    """Which session this is: n-th start on the host, n-th start of this form, how many of it came to a clean end."""

    host: int
    form_starts: int
    form_finished: int


@dataclass
class Record:
    """The content of ``state.json``."""

    sessions: int = 0
    session_requests: int = 0
    requests: int = 0
    tool_calls: int = 0
    clock_s: float = 0.0
    form_starts: dict[str, int] = field(default_factory=dict)
    form_finished: dict[str, int] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    residue: list[int] = field(default_factory=list)


class HostState:
    """The virtual host's memory in a directory; with ``directory=None`` it lives in this object only (campaigns)."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self._memory = Record()
        self._held = False
        self._threads = threading.RLock()

    @classmethod
    def from_environment(cls) -> HostState:
        """Open the directory named by ``VIRTUALHOST_STATE`` (default: one per user among the temporary files)."""
        default = f"{os.environ.get('TMPDIR', '/tmp')}/virtualhost-{os.getuid()}"
        return cls(Path(os.environ.get("VIRTUALHOST_STATE", default)).absolute())

    @property
    def override_path(self) -> Path | None:
        """Where a change of the living host is looked for; None when there is none."""
        path = self.directory / "override.yaml" if self.directory else None
        return path if path and path.is_file() else None

    @contextmanager
    def edit(self) -> Iterator[Record]:
        """Hold the lock, hand out the record, and store it when the block ends without an exception."""
        with self._threads:
            if self.directory is None or self._held:
                yield self._memory
                return
            lock = self._lock(self.directory)
            self._held = True
            try:
                self._memory = self._load()
                before = json.dumps(asdict(self._memory))
                yield self._memory
                if json.dumps(asdict(self._memory)) != before:
                    _write_json(self.directory / "state.json", {"schema": SCHEMA, **asdict(self._memory)})
            finally:
                self._held = False
                os.close(lock)

    @staticmethod
    def _lock(directory: Path) -> int:
        try:
            (directory / "jobs").mkdir(parents=True, exist_ok=True)
            lock = os.open(directory / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StateError(f"{directory}: cannot be written: {error.strerror}") from error
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def _is_new(self) -> bool:
        """Whether nothing has happened on this host yet: looking at it leaves no trace."""
        return self.directory is not None and not self.directory.exists()

    def _load(self) -> Record:
        assert self.directory is not None
        try:
            stored = json.loads((self.directory / "state.json").read_text(encoding="utf-8"))
            return Record(**{key: value for key, value in stored.items() if key != "schema"})
        except FileNotFoundError:
            return Record()
        except (ValueError, TypeError, AttributeError) as error:
            raise StateError(f"{self.directory}/state.json is damaged; remove it to have the host as new") from error

    # -- sessions -----------------------------------------------------------------------------------------------

    def begin_session(self, cards: Sequence[int], form: str) -> SessionNumbers:
        """Count a start of a server with a form on cards and say which one it is."""
        key = _key(cards, form)
        with self.edit() as record:
            record.sessions += 1
            record.session_requests = 0
            record.form_starts[key] = record.form_starts.get(key, 0) + 1
            return SessionNumbers(record.sessions, record.form_starts[key], record.form_finished.get(key, 0))

    def resume(self, cards: Sequence[int], form: str, *, sessions: int, of_form: int) -> None:
        """Go on as after so many starts on the host, so many of them this form's on these cards, all ended cleanly."""
        key = _key(cards, form)
        with self.edit() as record:
            record.sessions = sessions
            record.form_starts[key] = record.form_finished[key] = of_form

    def finish_session(self, cards: Sequence[int], form: str, clock_s: float) -> None:
        """Note a clean end: only these advance a form's noise, so an interrupted session can be repeated exactly."""
        key = _key(cards, form)
        with self.edit() as record:
            record.form_finished[key] = record.form_finished.get(key, 0) + 1
            record.clock_s = max(record.clock_s, clock_s)

    def count_request(self) -> int:
        """Count a request of any server on this host; returns its number among those of the latest session, from 1."""
        with self.edit() as record:
            record.requests += 1
            record.session_requests += 1
            return record.session_requests

    def count_tool_call(self) -> int:
        """Count a call of the vendor's tool; returns its number, from 1."""
        with self.edit() as record:
            record.tool_calls += 1
            return record.tool_calls

    def may_fire(self, fault: str, times: int | None) -> bool:
        """Whether a fault that happens at most ``times`` times (None: always) may happen once more; counts it."""
        with self.edit() as record:
            if times is not None and record.fired.get(fault, 0) >= times:
                return False
            record.fired[fault] = record.fired.get(fault, 0) + 1
            return True

    # -- jobs and residue ---------------------------------------------------------------------------------------

    def register(self, job: Job) -> None:
        """Write down a running server (again whenever its ranks change)."""
        if self.directory is not None:
            with self.edit():
                _write_json(self.directory / "jobs" / f"{job.pid}.json", {"schema": SCHEMA, **asdict(job)})

    def unregister(self, pid: int) -> None:
        """Forget a server that stopped cleanly."""
        if self.directory is not None:
            (self.directory / "jobs" / f"{pid}.json").unlink(missing_ok=True)

    def jobs(self, *, residue: bool = True) -> tuple[Job, ...]:
        """Return the running servers; one that vanished without a clean stop leaves residue if it had several cards."""
        if self.directory is None or self._is_new():
            return ()
        running = []
        with self.edit() as record:
            for path in sorted((self.directory / "jobs").glob("*.json")):
                job = _job(json.loads(path.read_text(encoding="utf-8")))
                if job.alive():
                    running.append(job)
                    continue
                path.unlink(missing_ok=True)
                if residue and len(job.cards) > 1:
                    record.residue = sorted({*record.residue, *job.cards})
        return tuple(running)

    def add_residue(self, cards: Sequence[int]) -> None:
        """Put cards into the residue state."""
        with self.edit() as record:
            record.residue = sorted({*record.residue, *cards})

    def reset_card(self, card: int) -> None:
        """A driver reset of one card: the residue state ends."""
        with self.edit() as record:
            record.residue = [other for other in record.residue if other != card]

    def snapshot(self) -> Record:
        """Return the record as it is now."""
        if self._is_new():
            return Record()
        with self.edit() as record:
            return Record(**asdict(record))


def _key(cards: Sequence[int], form: str) -> str:
    return f"{','.join(map(str, cards))}/{form}"


def _job(stored: dict[str, Any]) -> Job:
    ranks = tuple(RankProcess(**rank) for rank in stored["ranks"])
    return Job(stored["pid"], stored["start"], tuple(stored["cards"]), stored["form"], stored["session"], ranks)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StateError(f"{path}: cannot be written: {error.strerror}") from error
