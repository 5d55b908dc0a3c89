"""The history kept, whatever is wrong with its file: no measurement waits for it, and nothing is lost for good.

What cannot be recorded in it goes into a stand-in below results/, which begins as a copy of what can be read of the
history, and which the history takes over the first time it can be written again.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from anchormatrix.errors import AnchorMatrixError, InputError
from anchormatrix.history.query import nights_before
from anchormatrix.history.record import record_results, record_session
from anchormatrix.history.reruns import write_reruns
from anchormatrix.history.salvage import take_over
from anchormatrix.history.schema import migrate
from anchormatrix.history.store import History, check, connect, move_aside, open_history, read_history
from anchormatrix.records.session import Session
from anchormatrix.store.codec import read_record
from anchormatrix.store.files import write_json

_T = TypeVar("_T")
_BRIEF_S = 1.0  # how long a history is waited for that could not be used a moment ago


@dataclass
class Keeper:
    """Works on a history, or on what stands in for it. ``notices`` are what a person must be told of it, each
    once; of these the first ``said`` were told.
    """

    file: Path
    results: Path
    notices: list[str] = field(default_factory=list)
    said: int = 0

    @property
    def waiting(self) -> Path:
        """The stand-in."""
        return self.results / ".run" / "history-waiting.sqlite"

    def on(self, work: Callable[[History], _T]) -> _T:
        """Do some work on the history; where that cannot be, on its stand-in; else on what results/ holds, in memory.

        Raises what the work itself raises on each of them.
        """
        problem: Exception | None = None
        for opened in (self._history, self._stand_in, self._in_memory):
            try:
                with opened() as history:
                    return work(history)
            except (AnchorMatrixError, sqlite3.Error, OSError) as error:
                problem = error
                self.say(f"history: {error}")
        raise problem or AssertionError

    def look_after(self) -> None:
        """Check the file, and move it aside when it is damaged."""
        try:
            if check(self.file):
                self.say(move_aside(self.file))
        except InputError as error:
            self.say(f"history: {error}")

    def say(self, text: str) -> None:
        """Add a notice, once."""
        if text not in self.notices:
            self.notices.append(text)

    def say_what_is_new(self, night: str) -> None:
        """Say when the history has fewer nights before this one than it had: they were not always missing."""
        held = self.on(lambda history: len(nights_before(history, night, -1)))
        known, last = self._known()
        earlier = any(found != night for found in self._nights_of_results())
        if held < known:
            lost = "the history is new" if not held else "the history has lost nights"
            self.say(
                f"{lost}: it holds {held} of the {known} nights known after {last}, tonight is compared with those"
            )
        elif not held and earlier:
            self.say("the history is new, although results/ holds an earlier night: that one is all tonight is held to")

    def remember(self, night: str) -> None:
        """Note how many nights the history holds, for :meth:`say_what_is_new`."""
        if not self.waiting.exists():
            held = self.on(lambda history: len(nights_before(history, "9999", -1)))
            write_json(self._note, {"nights": held, "last": night})

    def waiting_words(self, night: str) -> str:
        """Which sessions of a night wait to be recorded; empty when none does."""
        try:
            with read_history(self.waiting) as history:
                rows = history and history.connection.execute(
                    "SELECT contract, count(*) FROM sessions WHERE night = ? GROUP BY contract ORDER BY contract",
                    (night,),
                )
                counts = [f"{count} of {contract}" for contract, count in rows or ()]
        except InputError as error:
            return f"history: {error}"
        if not counts:
            return ""
        return (
            f"sessions that wait in {self.waiting} until the history can be written, by the next sweep or"
            f" scripts/record_history.py: {', '.join(counts)}"
        )

    @contextlib.contextmanager
    def _history(self) -> Iterator[History]:
        waits = self.waiting.exists()
        with open_history(self.file, busy_s=_BRIEF_S if waits else None) as history:
            if history.notice:
                self.say(history.notice)
            if waits:
                with contextlib.closing(connect(self.waiting, write=False)) as old:
                    take_over(old, history.connection)
                for ending in ("", "-wal", "-shm"):
                    Path(f"{self.waiting}{ending}").unlink(missing_ok=True)
                self.say(f"history: what waited in {self.waiting} is recorded")
            yield history

    @contextlib.contextmanager
    def _stand_in(self) -> Iterator[History]:
        begins = not self.waiting.exists()
        with open_history(self.waiting) as history:
            if begins:
                with contextlib.suppress(InputError), read_history(self.file) as old:
                    if old:
                        take_over(old.connection, history.connection)
            yield history

    @contextlib.contextmanager
    def _in_memory(self) -> Iterator[History]:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            migrate(connection)
            history = History(Path(":memory:"), connection)
            record_results(history, self.results)
            self.say(f"history: nothing is kept of it now; {self.results} holds what the next sweep will record")
            yield history

    @property
    def _note(self) -> Path:
        return self.results / ".run" / "history-known.json"

    def _known(self) -> tuple[int, str]:
        try:
            held = json.loads(self._note.read_text(encoding="utf-8"))
            return int(held["nights"]), str(held["last"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return 0, ""

    def _nights_of_results(self) -> Iterator[str]:
        for path in sorted(self.results.glob("c*-*/*/w*/session.json")):
            with contextlib.suppress(InputError):
                yield read_record(path, Session).night


def record_beside(file: Path | str, path: Path) -> str:
    """Record a session just measured; says what a person must know instead of raising.

    The measurement stands whether or not it could be recorded: what could not be is at the next chance.
    """
    keeper = Keeper(Path(file), path.parents[3])

    def work(history: History) -> None:
        if record_session(history, path) and read_record(path, Session).generation:
            write_reruns(history, path.parents[3])

    try:
        keeper.on(work)
    except (AnchorMatrixError, sqlite3.Error, OSError) as error:
        return f"not recorded in the history: {error}"
    return "; ".join(keeper.notices)
