"""The engine that the configuration names."""

from __future__ import annotations

from anchormatrix.engines.base import Engine
from anchormatrix.engines.vllm_omni import VllmOmni
from anchormatrix.records.settings.values import EngineKind
from anchormatrix.records.settings.whole import Settings


def open_engine(settings: Settings) -> Engine:
    """Return the engine of ``engine.kind``."""
    if settings.engine.kind == EngineKind.DUMMY_RUN:
        from anchormatrix.engines.dummy_run.engine import DummyRun  # noqa: PLC0415  needed by this kind only

        return DummyRun(settings)
    return VllmOmni(settings)
