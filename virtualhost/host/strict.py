"""Frozen dataclasses from mappings as YAML gives them: unknown keys and wrong types are errors with their path."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any


class ScenarioError(Exception):
    """A scenario that cannot be used: which key, what was given, what is allowed."""


def build(cls: type, value: object, path: str = "") -> Any:
    """Build a dataclass from a mapping. Raises :class:`ScenarioError` naming the key path."""
    if not isinstance(value, Mapping):
        raise ScenarioError(f"{path or 'scenario'}: {value!r} is not a mapping with keys {', '.join(_hints(cls))}")
    hints = _hints(cls)
    values = {}
    for key, item in value.items():
        if key not in hints:
            raise ScenarioError(f"{_join(path, key)}: no such key{_nearest(str(key), hints)}")
        values[key] = _convert(hints[key], item, _join(path, key))
    required = [f.name for f in dataclasses.fields(cls) if _is_required(f) and f.name not in values]
    if required:
        raise ScenarioError(f"{path or 'scenario'}: {', '.join(required)} must be given")
    try:
        return cls(**values)
    except ValueError as error:
        raise ScenarioError(f"{path or 'scenario'}: {error}") from error


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _nearest(key: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def _convert(kind: Any, value: Any, path: str) -> Any:
    """Return ``value`` as ``kind`` (scalars, tuples, mappings, dataclasses, unions of them) or say what is wrong."""
    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(kind, value, path)
    if origin is tuple:
        return _convert_tuple(typing.get_args(kind), value, path)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path}: {value!r} is not a mapping")
        key_kind, item_kind = typing.get_args(kind)
        return {
            _convert(key_kind, k, f"{path} (key)"): _convert(item_kind, v, _join(path, k)) for k, v in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), value, path)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind is not float and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ScenarioError(f"{path}: {value!r} is not {_name(kind)}")


def _convert_union(kind: Any, value: Any, path: str) -> Any:
    options = typing.get_args(kind)
    if value is None and type(None) in options:
        return None
    last: ScenarioError | None = None
    for option in options:
        if option is not type(None):
            try:
                return _convert(option, value, path)
            except ScenarioError as error:
                last = error
    raise last or ScenarioError(f"{path}: {value!r} is not allowed")


def _convert_tuple(kinds: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ScenarioError(f"{path}: {value!r} is not a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_convert(kinds[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if len(kinds) != len(value):
        raise ScenarioError(f"{path}: {value!r} must have {len(kinds)} entries")
    return tuple(_convert(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _name(kind: Any) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(kind, str(kind))
