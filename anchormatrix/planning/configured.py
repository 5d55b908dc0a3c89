"""The configuration in the words of this room: candidates of a size, limits of memory, sweep and design."""

from __future__ import annotations

from typing import Any

from anchormatrix.engines.find import open_engine
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.candidates import Candidates, Excluded, enumerate_forms, explicit_forms
from anchormatrix.planning.memory import MEMORY_GATE, MemoryLimits, plan_memory
from anchormatrix.planning.promising import keep_promising
from anchormatrix.planning.ranking import Rule
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.settings.values import Design
from anchormatrix.records.settings.whole import Settings


def candidates_of(settings: Settings, size: int, *, card_gb: float | None = None, version: str = "") -> Candidates:
    """The forms to measure on ``size`` cards, and every other one with its reason.

    ``forms: auto`` enumerates, a list is checked; the model's rules, then the engine's, then (with ``card_gb``, the
    memory of one card) the memory gate, which may replace a form by its offloaded variant. Of the forms that ``auto``
    finds, ``matrix.most_forms`` are kept.
    """
    model, engine = settings.model, open_engine(settings, version)
    limits, chunks = engine.limits(), settings.selection.mask_chunks
    if isinstance(settings.matrix.forms, str):
        found = enumerate_forms(model, size, limits, chunks=chunks, refusal=engine.refusal)
    else:
        found = explicit_forms(settings.matrix.forms.get(size, ()), model, size, limits, refusal=engine.refusal)
    most = settings.matrix.most_forms if isinstance(settings.matrix.forms, str) else None
    if card_gb is None:
        return keep_promising(found, model, most)
    plan = plan_memory(found.forms, model, memory_limits(settings, card_gb))
    unlocked = tuple(
        Excluded(plain, f"does not fit without offload: measured as {variant}", MEMORY_GATE)
        for plain, variant in plan.unlocked
    )
    fitting = Candidates(size, plan.forms, (*found.excluded, *unlocked, *plan.dropped))
    return keep_promising(fitting, model, most)


def memory_limits(settings: Settings, card_gb: float) -> MemoryLimits:
    """The memory gate's limits for cards of ``card_gb`` (10⁹ bytes)."""
    selection = settings.selection
    return MemoryLimits(card_gb, selection.memory_reserve_gb, selection.host_memory_gb, selection.offload_order)


def sweep_settings(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of :func:`~anchormatrix.measure.bandwidth.plan.plan_sweep`."""
    wanted = settings.selection.bandwidth
    return {"sizes_mb": wanted.sizes_mb, "concurrency": wanted.concurrency, "repeats": wanted.repeats}


def matrix_design(settings: Settings, known: StartNoise | None = None) -> MatrixDesign:
    """How the matrix is measured, and by which rule its fastest form is found under either design.

    ``known`` is what history tells of the noise between starts. Under the adaptive design a form is started at most
    ``windows + extra_windows`` times.
    """
    matrix, adaptive = settings.matrix, settings.matrix.design == Design.ADAPTIVE
    windows = matrix.windows + (matrix.extra_windows if adaptive else 0)
    rule = Rule(
        zone_pct=settings.verdict.noise_floor_pct,
        first_window=matrix.windows,
        most_windows=windows,
        far_pct=Rule.far_pct if adaptive else None,
        known=known,
    )
    return MatrixDesign(matrix.repeats, windows, adaptive, rule)
