"""The configuration in the words of this room: candidates of a size, limits of memory, sweep and adaptive policy."""

from __future__ import annotations

from typing import Any

from anchormatrix.engines.open import open_engine
from anchormatrix.planning.adaptive import limits_from
from anchormatrix.planning.adaptive_state import AdaptiveLimits
from anchormatrix.planning.candidates import Candidates, Excluded, enumerate_forms, explicit_forms
from anchormatrix.planning.memory import MEMORY_GATE, MemoryLimits, plan_memory
from anchormatrix.records.settings.values import Design
from anchormatrix.records.settings.whole import Settings


def candidates_of(settings: Settings, size: int, *, card_gb: float | None = None) -> Candidates:
    """The forms to measure on ``size`` cards, and every other one with its reason.

    ``forms: auto`` enumerates, a list is checked; the model's rules, then the engine's, then (with ``card_gb``, the
    memory of one card) the memory gate, which may replace a form by its offloaded variant.
    """
    model, engine = settings.model, open_engine(settings)
    limits, chunks = engine.limits(), settings.selection.mask_chunks
    if isinstance(settings.matrix.forms, str):
        found = enumerate_forms(model, size, limits, chunks=chunks, refusal=engine.refusal)
    else:
        found = explicit_forms(settings.matrix.forms.get(size, ()), model, size, limits, refusal=engine.refusal)
    if card_gb is None:
        return found
    plan = plan_memory(found.forms, model, memory_limits(settings, card_gb))
    unlocked = tuple(
        Excluded(plain, f"does not fit without offload: measured as {variant}", MEMORY_GATE)
        for plain, variant in plan.unlocked
    )
    return Candidates(size, plan.forms, (*found.excluded, *unlocked, *plan.dropped))


def memory_limits(settings: Settings, card_gb: float) -> MemoryLimits:
    """The memory gate's limits for cards of ``card_gb`` (10⁹ bytes)."""
    selection = settings.selection
    return MemoryLimits(card_gb, selection.memory_reserve_gb, selection.host_memory_gb, selection.offload_order)


def sweep_settings(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of :func:`~anchormatrix.measure.bandwidth.plan.plan_sweep`."""
    wanted = settings.selection.bandwidth
    return {"sizes_mb": wanted.sizes_mb, "concurrency": wanted.concurrency, "repeats": wanted.repeats}


def adaptive_limits(settings: Settings) -> AdaptiveLimits | None:
    """The adaptive policy's limits, or None under the full design."""
    if settings.matrix.design != Design.ADAPTIVE:
        return None
    return limits_from(settings.matrix, settings.verdict, extra_windows=settings.matrix.extra_windows)
