"""The comparison of two runs: what they differ in, and which of them is faster in each cell that both measured."""

from __future__ import annotations

import enum
from typing import Any

from anchormatrix.records.base import FileRecord, Record


class Bearing(enum.StrEnum):
    """What a difference between two runs means for their numbers.

    With a ``forbids`` the step of one run is another thing than that of the other. ``compared`` is what a comparison
    is made for. ``aside`` does not shape a step.
    """

    FORBIDS = "forbids"
    COMPARED = "compared"
    ASIDE = "aside"


class FactDifference(Record, frozen=True):
    """A fact that two runs do not share, by its dotted name, with both values (``None``: the run has none).

    Empty ``tier``: of both tiers. ``why`` says why it forbids a comparison.
    """

    name: str
    a: Any
    b: Any
    bearing: Bearing
    why: str = ""
    tier: str = ""


class CellOutcome(enum.StrEnum):
    """What two measurements of one cell say."""

    A_FASTER = "a_faster"
    B_FASTER = "b_faster"
    NO_DIFFERENCE = "no_difference"
    NOT_DECIDABLE = "not_decidable"
    NOT_COMPARABLE = "not_comparable"


class CellSide(Record, frozen=True):
    """A cell of one run over all its windows. ``doubt`` says why its own run would not use it."""

    step_s: float
    dispersion_pct: float
    repeats: int
    starts: int
    doubt: str = ""


class CellComparison(Record, frozen=True):
    """One cell in two runs. ``delta_pct`` is ``b`` against ``a``, positive when ``b`` is slower, over server starts.

    The true difference lies between ``low_pct`` and ``high_pct``; None where the noise between starts is not known or
    the step is another one.
    """

    form: str
    tier: str
    steps: int
    a: CellSide
    b: CellSide
    delta_pct: float | None
    low_pct: float | None
    high_pct: float | None
    outcome: CellOutcome
    text: str


class LackingCell(Record, frozen=True):
    """A cell that only one run measured, and why the other, ``lacks_it`` (``a`` or ``b``), did not."""

    form: str
    tier: str
    lacks_it: str
    reason: str


class SizeComparison(Record, frozen=True):
    """Two contracts of one card count. ``unknown`` is what no file of either run tells to be equal."""

    size: int
    contract_a: str
    contract_b: str
    differences: tuple[FactDifference, ...]
    unknown: tuple[str, ...]
    cells: tuple[CellComparison, ...]
    lacking: tuple[LackingCell, ...]

    @property
    def forbidden(self) -> bool:
        """Whether some difference forbids every comparison."""
        return any(one.bearing is Bearing.FORBIDS and not one.tier for one in self.differences)


class RunComparison(FileRecord, frozen=True):
    """Two runs, by the folders of their results. ``zone_pct`` is the difference below which there is none, ``level``
    the chance that a difference lies beyond one end of its interval, shared among the cells of a size and tier.
    ``lacking`` names the sizes that only one of them measured.
    """

    a: str
    b: str
    zone_pct: float
    level: float
    sizes: tuple[SizeComparison, ...]
    lacking: tuple[str, ...]
