"""The engine that the configuration names."""

from __future__ import annotations

from anchormatrix.engines.base import Engine
from anchormatrix.engines.vllm_omni import VllmOmni
from anchormatrix.errors import ConfigError
from anchormatrix.records.settings import Settings


def open_engine(settings: Settings) -> Engine:
    """Return the engine of ``engine.kind``."""
    kind = settings.engine.kind
    if kind == "vllm-omni":
        return VllmOmni(settings)
    if kind == "dummy-run":
        from anchormatrix.engines.dummy_run.engine import DummyRun  # noqa: PLC0415  needed by this kind only

        return DummyRun(settings)
    raise ConfigError(f"engine kind {kind!r} is unknown", where="engine.kind", expected="vllm-omni or dummy-run")
