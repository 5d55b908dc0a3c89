"""Result files read for the report: none that is missing or unusable stands in the way of the rest.

A file that cannot be used becomes a :class:`Problem` that the report shows; what it would have said is then said to be
missing. Text in a record is as it was written: :func:`clean` makes it harmless where it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from anchormatrix.errors import InputError
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.store.codec import file_bytes, parse_record, read_record, read_table

T = TypeVar("T")
F = TypeVar("F", bound=FileRecord)
R = TypeVar("R", bound=Record)
_TEXT_LIMIT = 4000
_SPACES = "\n\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"  # our own sentences are set with the latter two


@dataclass(frozen=True)
class Problem:
    """A file that could not be used: its path below the results folder, and why."""

    file: str
    text: str


@dataclass(frozen=True)
class Part(Generic[T]):
    """A piece of the report that may be missing; ``missing`` then says why and what makes it."""

    value: T | None
    missing: str = ""


@dataclass
class Source:
    """The results folder, and the problems met while reading it."""

    root: Path
    problems: list[Problem] = field(default_factory=list)

    def part(self, path: Path, kind: type[F], missing: str) -> Part[F]:
        """Read the record of a file. Missing: a part with the given reason. Unusable: that, and a problem."""
        return self._read(path, lambda: read_record(path, kind, todo=""), missing)

    def rows(self, path: Path, kind: type[R], missing: str) -> Part[tuple[R, ...]]:
        """Read the records of a CSV file. A row that cannot be used makes the file unusable."""
        return self._read(path, lambda: read_table(path, kind, todo=""), missing)

    def lines(self, path: Path, kind: type[F]) -> tuple[F, ...]:
        """Read an append-only file of JSON lines. A torn or foreign line is a problem; the others are used."""
        found: list[F] = []
        try:
            content = file_bytes(path) if path.exists() else b""
        except InputError as error:
            self.report(path, error.what)
            return ()
        for number, line in enumerate(content.split(b"\n"), start=1):
            try:
                if line.strip():
                    found.append(parse_record(line, kind, where="", todo=""))
            except InputError as error:
                self.report(path, f"line {number}: {error}")
        return tuple(found)

    def report(self, path: Path, text: str) -> None:
        """Note a problem with a file."""
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        self.problems.append(Problem(str(name), text))

    def _read(self, path: Path, read: Callable[[], T], missing: str) -> Part[T]:
        if not path.exists():
            return Part(None, missing)
        try:
            return Part(read())
        except InputError as error:
            text = str(error).removeprefix(str(path)).removeprefix(": ")
            self.report(path, text)
            return Part(None, f"{path.name} cannot be used: {text}")


def clean(value: Any) -> Any:
    """Make every text in plain values harmless to show: printable, valid Unicode, bounded in length."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    return value


def clean_text(text: str) -> str:
    """Replace control, direction and surrogate characters, and clip what is absurdly long."""
    text = clip(text, _TEXT_LIMIT)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _SPACES else "\N{REPLACEMENT CHARACTER}" for char in text)


def clip(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters, the last of which then is an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
