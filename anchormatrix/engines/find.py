"""The engine that the configuration names, found among the installed ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from anchormatrix.engines.base import Engine
from anchormatrix.errors import AnchorMatrixError, ConfigError
from anchormatrix.records.settings.whole import Settings

GROUP = "anchormatrix.engines"
# What the protocol names: its attributes, then its methods
_PROMISED = (*Engine.__annotations__, *(name for name in vars(Engine) if not name.startswith("_")))


def open_engine(settings: Settings, version: str = "") -> Engine:
    """Return the engine whose entry point is called ``engine.kind``, for the ``version`` of it that the host told.

    Raises :class:`ConfigError` when none is, when two packages offer one of that name, when it cannot be loaded
    or made, or when it lacks a part of the protocol.
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
    except AnchorMatrixError:
        raise  # what an engine says of the settings
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"the engine {kind!r} of {_package(point)} cannot be loaded: {type(error).__name__}: {error}",
            where="engine.kind",
            todo=f"correct its entry point {point.value!r}, or what it loads",
        ) from error
    if missing := [name for name in _PROMISED if not hasattr(engine, name)]:
        raise ConfigError(
            f"the engine {kind!r} of {_package(point)} has no {', '.join(missing)}",
            where="engine.kind",
            expected="all that anchormatrix/engines/base.py promises",
        )
    return engine


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
