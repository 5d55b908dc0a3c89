"""The files of a session: ``session.json``, the ``requests.csv`` beside it, the server's log, and the output kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.records.outputs import Outputs
from anchormatrix.records.requests import Basis, RequestRow, Role, Witness
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.store.codec import read_record, read_table, write_record, write_table
from anchormatrix.store.files import write_bytes, write_text

_AGAIN = "delete its folder; the next run measures it again"


@dataclass(frozen=True)
class TimedSession:
    """A session with the requests that were sent in it."""

    session: Session
    requests: tuple[RequestRow, ...] = ()

    @property
    def place(self) -> tuple[str, int]:
        """Its form and window."""
        return self.session.form, self.session.window

    def held_to(self, outputs: Outputs) -> TimedSession:
        """The session by what its output says of it."""
        return TimedSession(outputs.applied_to(self.session), self.requests)

    @cached_property
    def values_s(self) -> Mapping[str, tuple[float, ...]]:
        """Step times in seconds of the repeats, by tier, in the order measured."""
        return {tier: tuple(row.step_s for row in rows if row.step_s) for tier, rows in self._repeats.items()}

    @cached_property
    def clocked_s(self) -> tuple[tuple[str, float], ...]:
        """Tier and seconds of every repeat as the clock gave them, before anything was divided."""
        return tuple((tier, row.diffuse_s or row.step_s or 0.0) for tier, rows in self._repeats.items() for row in rows)

    @cached_property
    def denominators(self) -> Mapping[str, frozenset[tuple[str, int]]]:
        """Where the iterations of the repeats come from, and how many they are, by tier."""
        return {
            tier: frozenset((row.denominator or "", row.iterations or 0) for row in rows)
            for tier, rows in self._repeats.items()
        }

    @cached_property
    def bases(self) -> Mapping[str, frozenset[tuple[Basis, Witness]]]:
        """What was timed of the repeats and who told it, by tier; nothing of files that do not say so."""
        return {
            tier: frozenset((row.basis, row.witness) for row in rows if row.basis and row.witness)
            for tier, rows in self._repeats.items()
        }

    @cached_property
    def _repeats(self) -> Mapping[str, list[RequestRow]]:
        tiers: dict[str, list[RequestRow]] = {}
        for row in self.requests if self.session.status is SessionStatus.MEASURED else ():
            if row.role is Role.MEASURED and row.step_s:
                tiers.setdefault(row.tier, []).append(row)
        return tiers


def read_session(path: Path, contract: str | None = None) -> TimedSession:
    """Read one ``session.json`` and, of a measured session, the ``requests.csv`` beside it.

    Raises :class:`InputError` naming the file when either is missing or not what it should be, or when it was measured
    under another contract than the one given: such numbers are never mixed.
    """
    session = read_record(path, Session, todo=_AGAIN)
    if contract is not None and session.contract != contract:
        raise InputError(f"was measured under {session.contract!r}", where=str(path), expected=f"contract {contract}")
    measured = session.status is SessionStatus.MEASURED
    return TimedSession(session, read_requests(path) if measured else ())


def read_requests(path: Path) -> tuple[RequestRow, ...]:
    """The ``requests.csv`` beside a ``session.json``. Raises :class:`InputError` naming file and line."""
    return read_table(path.with_name("requests.csv"), RequestRow, todo=_AGAIN)


def read_output(path: Path) -> bytes:
    """The ``output.bin`` beside a ``session.json``. Raises :class:`InputError` naming the file."""
    file = path.with_name("output.bin")
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=str(file), todo=_AGAIN) from None


def write_session(path: Path, timed: TimedSession, log_text: str = "", output: bytes = b"") -> None:
    """Write ``server.log``, ``output.bin`` and ``requests.csv`` beside ``path``, then ``path`` itself, which stands for
    all of them."""
    write_text(path.with_name("server.log"), log_text)
    write_bytes(path.with_name("output.bin"), output)
    write_table(path.with_name("requests.csv"), RequestRow, timed.requests)
    write_record(path, timed.session)
