"""The shape of a stored JSON file, checked where it is read: one error with file, place and value.

A shape is a type (``float`` takes whole numbers, too), ``[shape]`` for a list of such, ``{key: shape}`` for an object
that has at least these keys, :class:`MapOf` for an object with any keys, ``Any`` for whatever is there, or
:class:`Maybe` of one of them, which may also be missing or null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchormatrix.errors import InputError

Shape = Any

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_MISSING = object()


@dataclass(frozen=True)
class Maybe:
    """Of this shape, or missing, or null."""

    shape: Shape


@dataclass(frozen=True)
class MapOf:
    """An object with any keys, every value of this shape."""

    shape: Shape


def check_shape(values: Any, shape: Shape, where: str) -> None:
    """Raise :class:`InputError` naming ``where`` and the place inside unless ``values`` has the shape."""
    wrong = _wrong(values, shape, "")
    if wrong:
        place, value, expected = wrong
        what = f"{place} is missing" if value is _MISSING else f"{place} is {ascii(value)[:80]}"
        raise InputError(what, where=where, expected=expected, todo="delete the file; the next run makes it again")


def _wrong(value: Any, shape: Shape, place: str) -> tuple[str, Any, str] | None:
    if shape is Any:
        return (place, value, "a value") if value is _MISSING else None
    if isinstance(shape, Maybe):
        return None if value is None or value is _MISSING else _wrong(value, shape.shape, place)
    if isinstance(shape, (Mapping, MapOf)):
        if not isinstance(value, Mapping):
            return place, value, "an object"
        inside = dict.fromkeys(value, shape.shape) if isinstance(shape, MapOf) else shape
        return _first(
            _wrong(value.get(key, _MISSING), inner, f"{place}.{key}".lstrip(".")) for key, inner in inside.items()
        )
    if isinstance(shape, list):
        if not isinstance(value, list):
            return place, value, "a list"
        return _first(_wrong(item, shape[0], f"{place}[{at}]") for at, item in enumerate(value))
    kinds = (int, float) if shape is float else (shape,)
    fits = isinstance(value, kinds) and (shape is bool or not isinstance(value, bool))
    return None if fits else (place, value, _WORDS[shape])


def _first(found: Any) -> tuple[str, Any, str] | None:
    return next((wrong for wrong in found if wrong), None)
