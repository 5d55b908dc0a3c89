"""What the result files of earlier runs note about themselves: of which night, how often asked for, in which state.

A file that is missing or cannot be read notes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anchormatrix.errors import InputError
from anchormatrix.store.files import read_json


class StoredResults:
    """The results folder as it was when the run first looked at it: a session's night is read once."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._nights: dict[Path, str] = {}

    def session(self, contract_id: str, form: str, window: int) -> Path:
        """The file of a session."""
        return self._results / contract_id / form / f"w{window}" / "session.json"

    def smoke(self, contract_id: str) -> Path:
        """The file of the smoke of a contract's group."""
        return self._results / contract_id / "smoke.json"

    def night(self, path: Path) -> str:
        """The night noted in a result file, or empty text."""
        if path not in self._nights:
            self._nights[path] = str(_note(path, "night") or "")
        return self._nights[path]

    def generation(self, path: Path) -> int:
        """How often a result had been asked for again when it was made."""
        value = _note(path, "generation")
        return value if isinstance(value, int) else 0

    def smoke_state(self, contract_id: str) -> str:
        """The health and occupancy that the last smoke of a group was made in, as one word."""
        return str(_note(self.smoke(contract_id), "state") or "")

    def smoke_status(self, contract_id: str) -> str:
        """How the last smoke of a group ended."""
        return str(_note(self.smoke(contract_id), "status") or "")


def _note(path: Path, key: str) -> Any:
    try:
        return read_json(path).get(key)
    except InputError:
        return None
