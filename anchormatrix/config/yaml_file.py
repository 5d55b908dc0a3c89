"""One configuration file as plain values: maps with text keys, lists, text, numbers, true or false, null. Nothing else.

Scalars are read as YAML 1.2 reads them, so that nothing is turned into something else behind the writer's back: a
date stays text, ``22:30`` is not 1350, ``010`` is ten, ``on`` is text, ``1e-5`` is a number. A file that ends in
``.json`` is read as JSON.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from anchormatrix.errors import ConfigError

_LARGEST_BYTES = 256 * 2**10
_MOST_VALUES = 500_000
_DEEPEST = 50
_EXPECTED = "maps, lists, text, numbers, true, false and null, without tags"
_TODO = "correct the file; config/README.md names every key"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "tag:yaml.org,2002:merge"


def read_config(path: Path) -> dict[str, Any]:
    """Read one YAML (or JSON) file as a map with text keys; a key given twice is an error, not a silent choice.

    Raises :class:`ConfigError` naming the file, and the line where there is one.
    """
    text = _text(path)
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        values = _json(text) if kind == "JSON" else yaml.load(text, Loader=_StrictLoader)
    except yaml.reader.ReaderError as error:
        line, what = text.count("\n", 0, error.position) + 1, f"holds the character {chr(error.character)!a}"
        raise ConfigError(what, where=f"{path}:{line}", expected=_EXPECTED, todo=_TODO) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        what = f"not YAML: {getattr(error, 'problem', None) or error}"
        raise ConfigError(what, where=where, expected=_EXPECTED, todo=_TODO) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not {kind}: {error}", where=str(path), expected=_EXPECTED, todo=_TODO) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"holds {type(values).__name__}", where=str(path), expected="a map of sections", todo=_TODO)
    try:
        return plain_values(values)
    except ConfigError as error:
        error.where = f"{path}: {error.where}"
        raise


def read_scalar(text: str) -> Any:
    """A single value as a configuration file would hold it; the text itself when it is no scalar."""
    try:
        value = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError:
        return text
    return text if isinstance(value, (dict, list)) else value


def plain_values(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the same values with text keys everywhere.

    Raises :class:`ConfigError` naming the key of what no configuration can mean: an infinite number, text that no
    program can be given, a structure that holds itself or that aliases make endlessly large.
    """
    plain: dict[str, Any] = _plain(values, (), itertools.count(1))
    return plain


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
        if len(data) > _LARGEST_BYTES:
            what, expected = f"is larger than {_LARGEST_BYTES >> 10} KiB", "a few kilobytes of YAML"
            raise ConfigError(what, where=str(path), expected=expected, todo="check which file is given")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"byte {ascii(data[error.start : error.start + 1])[1:]} is no UTF-8"
        where = f"{path}:{data.count(bytes([10]), 0, error.start) + 1}"
        raise ConfigError(what, where=where, expected="text in UTF-8", todo="save it as UTF-8") from None
    except OSError as error:
        what = f"cannot be read ({error.strerror or error})"
        raise ConfigError(what, where=str(path), expected="a YAML file", todo="check which file is given") from None


def _json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
            raise ValueError(f"key {twice!r} is given twice")
        return found

    return json.loads(text, object_pairs_hook=unique)


def _plain(value: Any, path: tuple[str, ...], counter: Iterator[int]) -> Any:
    if next(counter) > _MOST_VALUES or len(path) > _DEEPEST:
        raise ConfigError(
            "holds too much, or itself",
            where=".".join(path[:3]) or "configuration",
            expected=f"at most {_MOST_VALUES} values (each use of an alias counts) and {_DEEPEST} levels",
            todo="write out what the alias stands for",
        )
    if isinstance(value, Mapping):
        return {
            _plain(str(key), path, counter): _plain(item, (*path, str(key)), counter) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, (*path, str(at)), counter) for at, item in enumerate(value)]
    where = ".".join(path) or "configuration"
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{value} is not a number to count with", where=where, expected="a finite number")
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise ConfigError(f"{ascii(value)[:80]} is not text", where=where, expected="text without NUL, in UTF-8")
    return value


class _StrictLoader(_Loader):
    """A loader of plain values for which a repeated key is an error; the fast one where PyYAML was built with it."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    yaml_constructors: dict[str | None, Any] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (dict, list)):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
            if str(key) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(str(key))
        return super().construct_mapping(node, deep)


def _number(loader: Any, node: yaml.ScalarNode) -> int | float:
    text = str(loader.construct_scalar(node))
    try:
        if text[:2] in ("0x", "0o"):
            return int(text, 0)
        return int(text) if node.tag.endswith(":int") else float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise _wrong(node, "a number") from None


def _truth(loader: Any, node: yaml.ScalarNode) -> bool:
    text = str(loader.construct_scalar(node)).lower()
    if text not in ("true", "false"):
        raise _wrong(node, "true or false")
    return text == "true"


def _wrong(node: yaml.ScalarNode, expected: str) -> yaml.constructor.ConstructorError:
    given = repr(node.value) if len(node.value) <= 40 else f"{node.value[:40]!r}… of {len(node.value)} characters"
    return yaml.constructor.ConstructorError(None, None, f"{given} is not {expected}", node.start_mark)


def _teach(loader: Any) -> None:
    core = "tag:yaml.org,2002:"
    scalars = (  # name, how it is written in YAML 1.2, first characters, how it is built
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], _Loader.construct_yaml_null),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), _truth),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _number),
        (
            "float",
            r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
            list("-+0123456789."),
            _number,
        ),
    )
    for name, pattern, first, build in scalars:
        loader.add_implicit_resolver(core + name, re.compile(rf"(?:{pattern})\Z"), first)
        loader.add_constructor(core + name, build)
    loader.add_implicit_resolver(_MERGE, re.compile(r"<<\Z"), ["<"])
    for name in ("str", "seq", "map"):
        loader.add_constructor(core + name, getattr(_Loader, f"construct_yaml_{name}"))
    loader.add_constructor(None, _Loader.construct_undefined)


_teach(_StrictLoader)
