"""The notes of earlier runs' result files about themselves: of which night, how often asked for, in which state.

A file that is missing or cannot be read notes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord
from anchormatrix.records.smoke import SmokeStatus
from anchormatrix.store.codec import read_record


class _Note(FileRecord, frozen=True):
    """What a session or smoke notes of itself; the rest of its file is not decoded: a dry run looks at every one."""

    night: str
    generation: int


class _SmokeNote(_Note, frozen=True):
    state: str
    status: SmokeStatus
    step_s: float | None = None


N = TypeVar("N", bound=_Note)


class StoredResults:
    """The results folder as it was when the run first looked at it: a result's night is read once."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._gone: frozenset[Path] = frozenset()
        self._nights: dict[Path, str] = {}
        self._latest: dict[str, str] = {}

    def leave_out(self, gone: Iterable[Path]) -> None:
        """Take these files for missing from here on: a dry run sets no damaged result aside, but plans as if it had."""
        self._gone = frozenset(gone)
        self._nights.clear()
        self._latest.clear()

    def exists(self, path: Path) -> bool:
        """Whether a result is there."""
        return path not in self._gone and path.exists()

    def session(self, contract_id: str, form: str, window: int) -> Path:
        """The file of a session."""
        return self._results / contract_id / form / f"w{window}" / "session.json"

    def smoke(self, contract_id: str) -> Path:
        """The file of the smoke of a contract's group."""
        return self._results / contract_id / "smoke.json"

    def night(self, path: Path) -> str:
        """The night noted in a session or smoke, or empty text."""
        if path not in self._nights:
            record = self._noted(path, _Note)
            self._nights[path] = record.night if record else ""
        return self._nights[path]

    def latest_night(self, contract_id: str) -> str:
        """The latest night that any session of a contract has, or empty text."""
        if contract_id not in self._latest:
            paths = (self._results / contract_id).glob("*/w*/session.json")
            self._latest[contract_id] = max(map(self.night, paths), default="")
        return self._latest[contract_id]

    def generation(self, path: Path) -> int:
        """How often a session or smoke had been asked for again when it was made."""
        record = self._noted(path, _Note)
        return record.generation if record else 0

    def smoke_state(self, contract_id: str) -> str:
        """The health and occupancy that the last smoke of a group was made in, as one word."""
        smoke = self._noted(self.smoke(contract_id), _SmokeNote)
        return smoke.state if smoke else ""

    def smoke_status(self, contract_id: str) -> SmokeStatus | None:
        """How the last smoke of a group ended."""
        smoke = self._noted(self.smoke(contract_id), _SmokeNote)
        return smoke.status if smoke else None

    def smoke_step_s(self, contract_id: str) -> float | None:
        """The step of the last smoke of a group that was not rejected, in seconds."""
        smoke = self._noted(self.smoke(contract_id), _SmokeNote)
        return smoke.step_s if smoke and smoke.status is not SmokeStatus.REJECTED else None

    def _noted(self, path: Path, kind: type[N]) -> N | None:
        try:
            return read_record(path, kind) if path not in self._gone else None
        except InputError:
            return None
