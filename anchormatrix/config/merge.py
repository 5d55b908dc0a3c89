"""The configuration: read, merged, checked once at the door, and handed on as frozen values.

Sections that describe a thing (host, device, engine, workload, model) are taken whole from the last file that gives
them, because half of one host and half of another is neither. Sections that describe a policy are merged key by key
over the default configuration; inside them a list or a map of sizes, forms or tiers is taken whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from anchormatrix.config.combinations import check_combinations
from anchormatrix.config.explain import refuse
from anchormatrix.config.project import ROOT, in_project
from anchormatrix.config.schema import configuration_schema
from anchormatrix.config.secrets import without_secrets
from anchormatrix.config.yaml_file import plain_values, read_config, read_scalar
from anchormatrix.errors import ConfigError
from anchormatrix.records.settings.whole import Settings

DEFAULT_FILE = ROOT / "config" / "config.yaml"

_THINGS = ("host", "device", "engine", "workload", "model")
_WHOLE = (("matrix", "forms"), ("matrix", "tiers"), ("smoke", "expected_step_s"), ("groups", "pinned"))


def load_settings(path: Path | str) -> Settings:
    """Read one configuration file over the default configuration."""
    return build_settings(merged([Path(path)]))


def merged(paths: Sequence[Path], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge configuration files, later over earlier, over the default file; then single overrides.

    Overrides come from a command line, where Snakemake makes text of everything inside a map, as in
    ``matrix={repeats: 5}``: text is read as a number, truth or null where no text is allowed. Of secrets the result
    holds references (:mod:`anchormatrix.config.secrets`).
    Raises :class:`ConfigError` naming the file and line of what cannot be read.
    """
    values = read_config(DEFAULT_FILE)
    for path in paths:
        if path.resolve() != DEFAULT_FILE:
            values = _over(values, read_config(path))
    if overrides:
        schema = configuration_schema()
        values = _over(values, _spoken(plain_values(overrides), schema, schema["$defs"]))
    return without_secrets(values)


def build_settings(values: Mapping[str, Any]) -> Settings:
    """Check a merged configuration against the schema and the rules between keys, and return it as values.

    The history file is absolute; the host resolves its own paths.

    Raises :class:`ConfigError` with the key path, what was given, what is allowed, and the nearest key for a typo.
    """
    values = plain_values(values)
    try:
        settings = msgspec.convert(values, Settings, str_keys=True)
    except msgspec.ValidationError as error:
        refuse(values)
        settings = _with_whole_numbers(values, error)
    check_combinations(settings)
    history = msgspec.structs.replace(settings.history, file=str(in_project(settings.history.file)))
    return msgspec.structs.replace(settings, history=history)


def _with_whole_numbers(values: Mapping[str, Any], refusal: Exception) -> Settings:
    """The settings of values that the schema allows although msgspec did not: ``4.0`` is as whole a number as ``4``."""
    try:
        return msgspec.convert(_whole(values), Settings, str_keys=True)
    except msgspec.ValidationError:
        raise ConfigError(str(refusal), where="configuration") from None


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spoken(value: Any, schema: Any, definitions: Mapping[str, Any]) -> Any:
    shape = _resolved(schema, definitions)
    if isinstance(value, Mapping):
        known, other = shape.get("properties", {}), shape.get("additionalProperties")
        return {key: _spoken(item, known.get(key, other), definitions) for key, item in value.items()}
    if isinstance(value, list):
        return [_spoken(item, shape.get("items"), definitions) for item in value]
    return read_scalar(value) if isinstance(value, str) and shape.get("type", "string") != "string" else value


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a value is read by: its definition, and of one that may also be null what it is otherwise."""
    if not isinstance(schema, Mapping):
        return {}
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    other = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return _resolved(other[0], definitions) if len(other) == 1 else schema


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
