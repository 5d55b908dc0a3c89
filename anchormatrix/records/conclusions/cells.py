"""The cell table: form × tier within one contract and window, and over all windows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Annotated, ClassVar

import msgspec

from anchormatrix.records.base import NotNegative, Positive, Record

ALL = "all"


def spread_pct(values: Sequence[float]) -> float:
    """Dispersion: (largest − smallest) ÷ median, in percent; 0 for a single value."""
    return (max(values) - min(values)) / median(values) * 100 if values else 0.0


class Cell(Record, frozen=True, kw_only=True):
    """The repeats of one form at one tier, in one window (``1``, ``2`` …) or over all windows (``all``).

    ``values_s`` are step times in seconds in the order measured, ``step_s`` is their median, ``dispersion_pct`` that of
    all ``repeats`` together: for ``all``, what drifts between windows counts too. ``usable`` says whether the cell may
    take part in the few-step ranking, ``reason`` why not. ``rests_on`` says what was timed, and who told it.
    """

    added: ClassVar[tuple[str, ...]] = ("rests_on",)

    contract: str
    form: str
    tier: str
    window: str
    repeats: int
    step_s: Positive
    dispersion_pct: NotNegative
    usable: bool
    reason: str = ""
    min_s: Positive
    max_s: Positive
    values_s: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    rests_on: str = ""


def cell_of(
    contract: str,
    form: str,
    tier: str,
    window: str,
    values_s: Sequence[float],
    dispersion_pct: float,
    reason: str = "",
    rests_on: str = "",
) -> Cell:
    """The cell of some repeats; without a ``reason`` it is usable."""
    return Cell(
        contract=contract,
        form=form,
        tier=tier,
        window=window,
        repeats=len(values_s),
        step_s=median(values_s),
        dispersion_pct=dispersion_pct,
        usable=not reason,
        reason=reason,
        min_s=min(values_s),
        max_s=max(values_s),
        values_s=tuple(values_s),
        rests_on=rests_on,
    )
