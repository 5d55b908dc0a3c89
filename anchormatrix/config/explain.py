"""What is wrong with a configuration: every key that the schema refuses, what was given and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anchormatrix.config.schema import configuration_schema
from anchormatrix.errors import ConfigError


def refuse(values: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` with the key path, what was given, what is allowed, and the nearest key for a typo.

    Values that the schema allows raise nothing.
    """
    import jsonschema  # noqa: PLC0415  a tenth of a second that only a wrong configuration costs

    found = jsonschema.Draft202012Validator(configuration_schema()).iter_errors(values)
    lines = [_explained(error) for error in sorted(_innermost(found), key=lambda error: list(map(str, error.path)))]
    if lines:
        first = lines[0]
        more = f" (and {len(lines) - 1} more: {'; '.join(str(line) for line in lines[1:4])})" if len(lines) > 1 else ""
        raise ConfigError(first.what + more, where=first.where, expected=first.expected, todo=first.todo)


def _innermost(errors: Iterable[Any]) -> Iterator[Any]:
    """The errors themselves; for a value that may also be null, those of what it may be otherwise."""
    for error in errors:
        null = {"type": "null"}
        if error.validator == "anyOf" and null in error.validator_value:
            yield from _innermost(inner for inner in error.context if inner.schema != null)
        else:
            yield error


def _explained(error: Any) -> ConfigError:
    where = ".".join(str(part) for part in error.absolute_path) or "configuration"
    known = list(error.schema.get("properties", {}))
    hint = error.schema.get("description", "")
    given = json.dumps(error.instance, ensure_ascii=False, default=str)[:120]
    if error.validator == "additionalProperties":
        unknown = sorted(set(error.instance) - set(known))
        import difflib  # noqa: PLC0415  only a wrong configuration needs it

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
