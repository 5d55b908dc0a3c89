"""The configuration: read, merged, checked once at the door, and handed on as frozen values.

Sections that describe a thing (host, device, engine, workload, model) are taken whole from the last file that gives
them, because half of one host and half of another is neither. Sections that describe a policy are merged key by key
over the default configuration; inside them a list or a map of sizes, forms or tiers is taken whole.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchormatrix.config.project import ROOT, in_project
from anchormatrix.config.yaml_file import plain_values, read_config, read_scalar
from anchormatrix.errors import ConfigError
from anchormatrix.records.form import OFFLOADS, Form, parse_form
from anchormatrix.records.settings import Settings

DEFAULT_FILE = ROOT / "config" / "config.yaml"
SCHEMA_FILE = ROOT / "config" / "config.schema.yaml"

_THINGS = ("host", "device", "engine", "workload", "model")
_WHOLE = (("matrix", "forms"), ("matrix", "tiers"), ("smoke", "expected_step_s"), ("groups", "pinned"))


def load_settings(path: Path | str) -> Settings:
    """Read one configuration file over the default configuration."""
    return build_settings(merged([Path(path)]))


def merged(paths: Sequence[Path], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge configuration files, later over earlier, over the default file; then single overrides.

    Overrides come from a command line, where Snakemake makes text of everything inside a map, as in
    ``matrix={repeats: 5}``: text is read as a number, truth or null where no text is allowed.
    Raises :class:`ConfigError` naming the file and line of what cannot be read.
    """
    values = read_config(DEFAULT_FILE)
    for path in paths:
        if path.resolve() != DEFAULT_FILE:
            values = _over(values, read_config(path))
    return _over(values, _spoken(plain_values(overrides or {}), read_config(SCHEMA_FILE)) if overrides else {})


def build_settings(values: Mapping[str, Any]) -> Settings:
    """Check a merged configuration against the schema and the rules between keys, and return it as values.

    The history file is absolute; the host resolves its own paths.

    Raises :class:`ConfigError` with the key path, what was given, what is allowed, and the nearest key for a typo.
    """
    values = plain_values(values)
    _check_schema(values)
    settings = typing.cast(Settings, _build(Settings, values))
    _check_combinations(settings)
    history = dataclasses.replace(settings.history, file=str(in_project(settings.history.file)))
    return dataclasses.replace(settings, history=history)


def _spoken(value: Any, schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    definitions = schema["$defs"] if definitions is None else definitions
    shape = (
        definitions[schema["$ref"].rpartition("/")[2]] if isinstance(schema, Mapping) and "$ref" in schema else schema
    )
    shape = shape if isinstance(shape, Mapping) else {}
    if isinstance(value, Mapping):
        known, other = shape.get("properties", {}), shape.get("additionalProperties")
        return {key: _spoken(item, known.get(key, other), definitions) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoken(item, shape.get("items"), definitions) for item in value]
    kinds = shape.get("type", "string")
    return read_scalar(value) if isinstance(value, str) and "string" not in kinds else value


def _over(base: Mapping[str, Any], top: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        here = (*path, key)
        below = result.get(key)
        whole = (not path and key in _THINGS) or here in _WHOLE
        if not whole and isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = _over(below, value, here)
        else:
            result[key] = value
    return result


def _check_schema(values: Mapping[str, Any]) -> None:
    import jsonschema  # noqa: PLC0415  a tenth of a second that not every importer needs

    schema = read_config(SCHEMA_FILE)
    errors = sorted(
        jsonschema.Draft202012Validator(schema).iter_errors(values),
        key=lambda error: [str(part) for part in error.path],
    )
    if errors:
        lines = [_explained(error) for error in errors]
        first = lines[0]
        more = f" (and {len(lines) - 1} more: {'; '.join(str(line) for line in lines[1:4])})" if len(lines) > 1 else ""
        raise ConfigError(first.what + more, where=first.where, expected=first.expected, todo=first.todo)


def _explained(error: Any) -> ConfigError:
    where = ".".join(str(part) for part in error.absolute_path) or "configuration"
    known = list(error.schema.get("properties", {}))
    hint = error.schema.get("description", "")
    given = json.dumps(error.instance, ensure_ascii=False, default=str)[:120]
    if error.validator == "additionalProperties":
        unknown = sorted(set(error.instance) - set(known))
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.5)
        todo = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return ConfigError(f"unknown key {unknown[0]!r}", where=where, todo=todo)
    if error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        return ConfigError(f"{', '.join(missing)} is missing", where=where, todo="config/README.md explains every key")
    if error.validator in ("anyOf", "oneOf"):
        return ConfigError(f"{given} is not allowed", where=where, expected=hint)
    allowed = {
        "type": lambda: _type_words(error.validator_value),
        "enum": lambda: "one of " + ", ".join(map(str, error.validator_value)),
        "const": lambda: str(error.validator_value),
        "minimum": lambda: f"at least {error.validator_value}",
        "exclusiveMinimum": lambda: f"more than {error.validator_value}",
        "maximum": lambda: f"at most {error.validator_value}",
        "minItems": lambda: f"at least {error.validator_value} of them",
        "minLength": lambda: "some text",
        "uniqueItems": lambda: "no entry twice",
        "pattern": lambda: hint or error.message,
    }.get(error.validator, lambda: error.message)()
    return ConfigError(
        f"{given} is not allowed", where=where, expected=allowed if hint in allowed else f"{allowed} ({hint})"
    )


def _type_words(names: str | Sequence[str]) -> str:
    words = {"object": "a map", "array": "a list", "string": "text", "integer": "a whole number", "null": "null"}
    listed = [names] if isinstance(names, str) else names
    return " or ".join(words.get(name, f"a {name}") for name in listed)


def _build(kind: Any, value: Any) -> Any:
    """Turn validated JSON values into the annotated type: dataclass, mapping, tuple, union or plain value."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _build_union(args, value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(**{key: _build(hints[key], item) for key, item in value.items()})
    if origin is tuple:
        return tuple(_build(args[0], item) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return {_build(args[0], key): _build(args[1], item) for key, item in value.items()}
    if kind is int and isinstance(value, (str, float)):  # keys of a map are text; 4.0 is as whole a number as 4
        return int(value)
    return value


def _build_union(args: Iterable[Any], value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    kind = next(arg for arg in args if typing.get_origin(arg) or dataclasses.is_dataclass(arg))
    return _build(kind, value)


def _check_combinations(settings: Settings) -> None:
    """Rules that tie two keys together, which a schema cannot say."""
    matrix = settings.matrix
    if settings.host.kind == "ssh" and settings.host.ssh is None:
        raise ConfigError("host.kind is ssh but host.ssh is not given", where="host", todo="add host.ssh.host")
    if matrix.tiers["few"] >= matrix.tiers["anchor"]:
        raise ConfigError(
            f"few is {matrix.tiers['few']} steps and anchor is {matrix.tiers['anchor']}",
            where="matrix.tiers",
            expected="few below anchor",
        )
    if matrix.warmups.min > matrix.warmups.max:
        raise ConfigError(f"min {matrix.warmups.min} is above max {matrix.warmups.max}", where="matrix.warmups")
    if settings.device.kind == "cpu" and settings.device.cards is None:
        raise ConfigError("a cpu device needs the number of cards", where="device.cards")
    for name in settings.selection.offload_order:
        if name not in OFFLOADS:
            raise ConfigError(f"{name!r}", where="selection.offload_order", expected=f"some of {', '.join(OFFLOADS)}")
    for size, cards in settings.groups.pinned.items():
        if len(set(cards)) != size:
            raise ConfigError(f"{list(cards)} is not {size} different cards", where=f"groups.pinned.{size}")
    _check_forms(settings)


def _check_forms(settings: Settings) -> None:
    if isinstance(settings.matrix.forms, str):
        return
    for size in settings.matrix.sizes:
        where = f"matrix.forms.{size}"
        names = settings.matrix.forms.get(size)
        if not names:
            raise ConfigError(
                "no form is given for this size",
                where=where,
                todo="the map of forms is taken whole: list forms for every size, set matrix.sizes, or use forms: auto",
            )
        forms = [_parsed(name, where) for name in names]
        for form in forms:
            if form.cards != size:
                raise ConfigError(f"form {form.name} runs on {form.cards} cards, not {size}", where=where)
        if len(set(forms)) != len(forms):
            raise ConfigError("a form is listed twice", where=where)


def _parsed(name: str, where: str) -> Form:
    try:
        return parse_form(name)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, expected=error.expected) from None
