"""The interface of a host: how everything runs commands, takes cards and moves files, on this machine or over SSH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """A command that ran to its end. ``stdout`` and ``stderr`` are UTF-8 with replacement characters."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    duration_s: float


@dataclass(frozen=True)
class StopRecord:
    """How a supervised process ended.

    ``how`` is ``exited`` (by itself, before it was asked), or the strongest signal that was needed: ``sigint``,
    ``sigterm``, ``sigkill``. ``exit_code`` is that of the process that was started, negative for a signal.
    ``survivors`` is the number of processes that even SIGKILL did not end (stuck in the kernel).
    """

    how: str
    seconds: float
    exit_code: int | None
    survivors: int


@dataclass(frozen=True)
class SupervisedCommand:
    """A command that is to run under supervision. Its output goes to ``log_path`` on the host.

    ``env`` is added to the host's environment; ``grace_s`` is how long a gentle stop may take. ``stop_command`` is run
    when stopping begins, for servers that signals do not reach; ``{pid}`` in it becomes the started process id.
    """

    argv: Sequence[str]
    log_path: str
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0
    stop_command: Sequence[str] = ()


class RunningProcess(Protocol):
    """A supervised process and everything it started."""

    pid: int
    """Process id on the host."""

    def poll(self) -> int | None:
        """The exit code of the started process, or ``None`` while it runs. Raises :class:`HostError` when lost."""
        ...

    def tree(self) -> tuple[int, ...]:
        """Process ids, on the host, of what was started and still lives, ascending, the process itself included."""
        ...

    def stop(self, *, grace_s: float) -> StopRecord:
        """Stop the whole tree: SIGINT, half the grace, SIGTERM, the other half, SIGKILL last. Idempotent."""
        ...


class Lease(Protocol):
    """Exclusive use of some cards; leave the context (or call ``release``) to give them back."""

    cards: tuple[int, ...]
    """Ascending."""
    suspect: tuple[int, ...]
    """Those of them on which a job had to be killed: not to be measured on before a smoke has passed."""

    def trust(self) -> None:
        """Say that a smoke has passed on these cards: they are no longer suspect."""
        ...

    def release(self) -> None:
        """Stop what runs under the lease, then give the cards back. Idempotent."""
        ...

    def __enter__(self) -> Lease: ...

    def __exit__(self, *_: object) -> None: ...


class Host(Protocol):
    """Where commands run."""

    alias: str

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, check: bool = True
    ) -> Completed:
        """Run a command to its end. ``env`` is added to the host's environment.

        Raises :class:`HostError` when the program is missing, hangs beyond ``timeout_s`` (it is then stopped), or,
        with ``check``, fails.
        """
        ...

    def lease(self, cards: Sequence[int], *, holder: Mapping[str, str], wait_s: float) -> Lease:
        """Take cards for exclusive use, all or none; ``holder["what"]`` says what for, who and since when are added.

        Raises :class:`LeaseError` naming who holds one of them.
        """
        ...

    def start(self, command: SupervisedCommand, *, lease: Lease) -> RunningProcess:
        """Start a supervised process under a lease of this host: one process at a time may run under it.

        It is stopped gently, within its grace, when this program ends in whatever way (a watchdog process sees to it);
        how, is then written to the log's path + ``.stop.json``. Raises :class:`HostError` when the program is missing
        or the log cannot be written.
        """
        ...

    def own_pids(self) -> frozenset[int]:
        """Process ids, on the host, that belong to this program: itself and what it started there."""
        ...

    def read_from(self, path: str, offset: int) -> bytes:
        """The bytes of a growing file from ``offset`` on; empty when there are none yet."""
        ...

    def fetch(self, path: str, to: Path) -> None:
        """Copy a file or a folder here. What was copied before a break is not copied again."""
        ...

    def free_port(self) -> int:
        """A loopback port of the host on which nothing listens."""
        ...

    def local_port(self, port: int) -> int:
        """A loopback port of this machine that reaches ``port`` on the host's loopback."""
        ...

    def scratch(self, name: str) -> str:
        """An own, empty folder on the host, removed when the host is closed."""
        ...

    def holders(self) -> list[dict[str, object]]:
        """Held and suspect cards: ``[{"card", "held", "user", "pid", "from", "since", "what", "locker", "suspect"}]``.

        What is not known is left out; ``suspect`` is there only where a job had to be killed, ``locker`` where the
        kernel names somebody else than the words do, ``problem`` where a lock file is not as it must be.
        """
        ...

    def close(self) -> None:
        """Stop what still runs, give leases back, remove scratch folders, disconnect. Idempotent."""
        ...
