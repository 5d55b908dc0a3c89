"""The reader of result files for the report: checked, cleaned, and never in the way of the rest of the report.

Result files may be missing, half of another version, edited, or full of text that came from a log. A file that cannot
be used becomes a :class:`Problem` that the report shows; what it would have said is then said to be missing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from anchormatrix.errors import AnchorMatrixError, InputError
from anchormatrix.store.files import SCHEMA, read_json

_LARGEST = 1e15  # neither a time nor a size on any host; beyond it arithmetic overflows
T = TypeVar("T")
_TEXT_LIMIT = 4000


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

    def part(self, path: Path, parse: Callable[[Fields], T], missing: str) -> Part[T]:
        """Read one JSON object. Missing: a part with the given reason. Unusable: that, and a problem."""
        if not path.exists():
            return Part(None, missing)
        try:
            return Part(parse(Fields(read_json(path))))
        except (AnchorMatrixError, RecursionError) as error:
            return self._unusable(path, error)

    def rows(
        self, path: Path, columns: Sequence[str], parse: Callable[[Fields], T], missing: str
    ) -> Part[tuple[T, ...]]:
        """Read a CSV file with these columns, one value per row. A row that cannot be used makes the file unusable."""
        if not path.exists():
            return Part(None, missing)
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                reader = csv.DictReader(stream)
                absent = [column for column in columns if column not in (reader.fieldnames or ())]
                if absent:
                    raise InputError(f"has no column {absent[0]}", expected=", ".join(columns))
                return Part(tuple(parse(Fields(row)) for row in reader))
        except (AnchorMatrixError, OSError, UnicodeDecodeError, csv.Error) as error:
            return self._unusable(path, error)

    def lines(self, path: Path, parse: Callable[[Fields], T]) -> tuple[T, ...]:
        """Read an append-only file of JSON lines. A torn or foreign line is a problem; the others are used."""
        found: list[T] = []
        for number, line in self._numbered(path):
            try:
                values = json.loads(line)
                if isinstance(values, dict) and values.get("schema") != SCHEMA:
                    raise InputError(f"schema is {values.get('schema')!r}", expected=str(SCHEMA))
                found.append(parse(Fields(values)))
            except (AnchorMatrixError, ValueError, RecursionError) as error:
                self.report(path, f"line {number}: {error}")
        return tuple(found)

    def report(self, path: Path, text: str) -> None:
        """Note a problem with a file."""
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        self.problems.append(Problem(clean_text(str(name)), clean_text(text)))

    def _numbered(self, path: Path) -> Iterator[tuple[int, str]]:
        if not path.exists():
            return
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.report(path, str(error))
            return
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, line

    def _unusable(self, path: Path, error: Exception) -> Part[Any]:
        text = str(error).removeprefix(f"{path}: ")
        self.report(path, text)
        return Part(None, f"{path.name} cannot be used: {clean_text(text)}")


class Fields:
    """A map from outside whose values are taken by the type they must have; :class:`InputError` otherwise."""

    def __init__(self, values: Any, where: str = "") -> None:
        if not isinstance(values, Mapping):
            raise InputError(
                f"{where or 'the content'} is {type(values).__name__}", expected="an object with named values"
            )
        self.values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        """Text; numbers are taken as text too."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, (str, int, float)):
            raise self._wrong(key, "text")
        return str(value)

    def number(self, key: str) -> float:
        """A finite number, also when written as text (CSV)."""
        found = self.maybe(key)
        if found is None:
            raise self._wrong(key, "a number")
        return found

    def maybe(self, key: str) -> float | None:
        """A finite number, or nothing when it is absent, null or empty."""
        value = self.values.get(key)
        if value is None or value == "":
            return None
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            raise self._wrong(key, "a number") from None
        if isinstance(value, bool) or not abs(found) <= _LARGEST:
            raise self._wrong(key, "a number that a measurement can give")
        return found

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        found = self.maybe(key)
        if found is None and default is not None:
            return default
        if found is None or found != int(found):
            raise self._wrong(key, "a whole number")
        return int(found)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false, also as written in CSV."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("true", "false", "1", "0"):
            return str(value).lower() in ("true", "1")
        raise self._wrong(key, "true or false")

    def child(self, key: str) -> Fields:
        """A nested object; an absent one is empty."""
        value = self.values.get(key)
        return Fields({} if value is None else value, self._path(key))

    def children(self, key: str) -> list[Fields]:
        """A list of objects; an absent one is empty."""
        return [Fields(item, f"{self._path(key)}[{i}]") for i, item in enumerate(self.items(key))]

    def items(self, key: str) -> list[Any]:
        """A list as it is; an absent one is empty."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of sentences: each entry is text, an object with a ``text``, or an object told as ``key value``."""
        value = self.values.get(key)
        if isinstance(value, str):
            return (value,) if value else ()
        return tuple(sentence(item) for item in self.items(key))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        found = self.items(key)
        if any(not isinstance(item, int) or isinstance(item, bool) for item in found):
            raise self._wrong(key, "a list of whole numbers")
        return tuple(found)

    def numbers(self, key: str) -> dict[str, float]:
        """A map of numbers; entries that are null are left out."""
        child = self.child(key)
        return {str(name): child.number(name) for name in child.values if name in child}

    def _path(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _wrong(self, key: str, expected: str) -> InputError:
        return InputError(f"{self._path(key)} is {clip(repr(self.values.get(key)), 60)}", expected=expected)


def sentence(item: Any) -> str:
    """Return an entry of a list as one sentence, whatever the writer put there."""
    if isinstance(item, Mapping):
        told = item.get("text")
        return (
            str(told)
            if told
            else ", ".join(f"{key} {plain(value)}" for key, value in item.items() if value is not None)
        )
    return plain(item)


def plain(value: Any) -> str:
    """Return a value as words: lists with commas, figures without a tail of digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    return "nothing" if value is None else str(value)


def clean(value: Any) -> Any:
    """Make every text in a decoded value harmless to show: printable, valid Unicode, bounded in length."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    return value


def clean_text(text: str) -> str:
    """Replace control, direction and surrogate characters, and clip what is absurdly long."""
    text = clip(text, _TEXT_LIMIT)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def clip(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters, the last of which then is an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
