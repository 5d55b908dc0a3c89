"""The engine that the configuration names, found among the installed ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from anchormatrix.engines.base import Engine
from anchormatrix.errors import ConfigError
from anchormatrix.records.settings.whole import Settings

GROUP = "anchormatrix.engines"


def open_engine(settings: Settings, version: str = "") -> Engine:
    """Return the engine whose entry point is called ``engine.kind``, for the ``version`` of it that the host told.

    Raises :class:`ConfigError` when none is, when two packages offer one of that name, or when it cannot be loaded.
    """
    kind = settings.engine.kind
    found = {(point.value, _package(point)): point for point in entry_points(group=GROUP, name=kind)}
    if not found:
        known = sorted({point.name for point in entry_points(group=GROUP)})
        raise ConfigError(
            f"no engine is called {kind!r}",
            where="engine.kind",
            expected=", ".join(known),
            todo=f"install the package that offers it in the entry-point group {GROUP}",
        )
    if len(found) > 1:
        packages = " and ".join(sorted(package for _, package in found))
        raise ConfigError(f"{packages} offer an engine {kind!r} each", where="engine.kind", todo="keep one of them")
    (point,) = found.values()
    try:
        engine: Engine = point.load()(settings, version)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the engine {kind!r} of {_package(point)} cannot be loaded: {error}",
            where="engine.kind",
            todo=f"correct its entry point {point.value!r}",
        ) from None
    return engine


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
