"""The files of scenarios: YAML that may extend another one, and be overridden in parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtualhost.host.scenario import Scenario
from virtualhost.host.strict import ScenarioError, build


def load_scenario(path: Path | str, override: Path | None = None) -> Scenario:
    """Read a scenario file and, when given, a file that overrides parts of it. Raises :class:`ScenarioError`."""
    merged = _read(Path(path), ())
    if override is not None:
        merged = _merge(merged, _load_yaml(override))
    return build(Scenario, merged)


def scenario_from_environment(override: Path | None = None) -> Scenario:
    """Load the scenario named by ``VIRTUALHOST_SCENARIO`` (default: the healthy host)."""
    default = Path(__file__).resolve().parents[1] / "scenarios" / "healthy.yaml"
    return load_scenario(os.environ.get("VIRTUALHOST_SCENARIO", default), override)


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise ScenarioError(f"{path}: extends itself through {' -> '.join(map(str, seen))}")
    content = _load_yaml(path)
    base = content.pop("extends", None)
    if base is None:
        return content
    below = _read(path.parent / str(base), (*seen, path))
    below.pop("expect", None)  # what a right report says belongs to one scenario, never to its variations
    return _merge(below, content)


def _load_yaml(path: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - the only heavy import; campaigns build scenarios without it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{path}: is not a mapping")
    return content


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
