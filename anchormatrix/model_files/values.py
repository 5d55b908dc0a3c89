"""The values of one configuration file of a model, read by key; what is not there is said by file and key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LARGEST = 10**9
_MOST_SIDES = 64


class NotFound(Exception):  # noqa: N818  a figure that files do not tell is an answer, not an error
    """A figure that the files do not tell: the file, and the key or what else is missing."""


@dataclass(frozen=True)
class ModelFile:
    """A configuration file by its name below the model's folder. ``problem`` says why it has no values."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def kind(self) -> str:
        """The class that the file configures, as diffusers writes it; empty without one."""
        found = self.values.get("_class_name")
        return found if isinstance(found, str) and found.isidentifier() else ""

    def has(self, key: str) -> bool:
        """Whether the file gives the key a value other than null."""
        return self.values.get(key) is not None

    def count(self, key: str) -> int:
        """A whole number from 1. Raises :class:`NotFound`."""
        return self._whole(self._given(key), key, least=1)

    def count_or_none(self, key: str) -> int:
        """A whole number from 0, where the layers of a kind may be none. Raises :class:`NotFound`."""
        return self._whole(self._given(key), key, least=0)

    def number(self, key: str) -> float:
        """A positive number. Raises :class:`NotFound`."""
        value = self._given(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
            raise self._strange(key, value, "a positive number")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false. Raises :class:`NotFound`."""
        value = self._given(key)
        if not isinstance(value, bool):
            raise self._strange(key, value, "true or false")
        return value

    def counts(self, key: str, length: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers, true being 1: ``length`` of them where it is given. Raises :class:`NotFound`."""
        values = self._list(key)
        if length is not None and len(values) != length:
            raise self._strange(key, values, f"a list of {length}")
        return tuple(int(value) if isinstance(value, bool) else self._whole(value, key, least=0) for value in values)

    def length(self, key: str) -> int:
        """How many entries a list has. Raises :class:`NotFound`."""
        return len(self._list(key))

    def _list(self, key: str) -> list[Any]:
        values = self._given(key)
        if not isinstance(values, list) or not 0 < len(values) <= _MOST_SIDES:
            raise self._strange(key, values, f"a list of at most {_MOST_SIDES}")
        return values

    def _given(self, key: str) -> Any:
        if self.problem:
            raise NotFound(f"{self.name} {self.problem}")
        if not self.has(key):
            raise NotFound(f"not found in {self.name}: key {key}")
        return self.values[key]

    def _whole(self, value: Any, key: str, *, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise self._strange(key, value, f"a whole number from {least}")
        return value

    def _strange(self, key: str, value: Any, expected: str) -> NotFound:
        return NotFound(f"not found in {self.name}: key {key} holds {_shown(value)}, not {expected}")


def parse_file(name: str, text: str) -> ModelFile:
    """Read one JSON configuration file; what is wrong with it is its ``problem``, in a few words."""
    try:
        values = json.loads(text)
    except RecursionError:
        return ModelFile(name, problem="is nested too deep for a configuration")
    except ValueError as error:
        return ModelFile(name, problem=f"is not JSON ({str(error)[:80]})")
    if not isinstance(values, dict):
        return ModelFile(name, problem=f"holds {_shown(values)}, not a map of keys")
    return ModelFile(name, values)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    printable = "".join(char if char.isprintable() else " " for char in text[:200])
    return printable if len(printable) <= 40 else f"{printable[:39]}…"
