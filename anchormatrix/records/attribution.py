"""The attribution file: where the time of one captured step goes, on every rank, in ms and shares of one. What is
``None`` or not set was not known.
"""

from __future__ import annotations

import enum

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.finding import Finding
from anchormatrix.records.session import Capture
from anchormatrix.records.waits import Bubbles, Masking, Timeline


class AttributionStatus(enum.StrEnum):
    """Whether a capture could be analysed."""

    ANALYSED = "analysed"
    REFUSED = "refused"


class StepRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's step in parts; ``communication_ms`` = exposed + overlapped.

    ``source`` says whether the profiler's step table or the kernels tell it, ``step`` which step it is. ``copy_ms`` is
    not known from a step table; ``host_ms`` is that of traces without a device: what wrappers take for themselves,
    beside neither compute nor communication; copies run in Free, or beside the other parts.
    """

    step: int | None = None
    rank: int
    stage_ms: float
    computing_ms: float
    exposed_ms: float
    overlapped_ms: float
    communication_ms: float
    free_ms: float
    bubble_ms: float
    preparing_ms: float
    copy_ms: float = 0.0
    host_ms: float = 0.0
    source: str = ""


class OutsideRow(Record, frozen=True, kw_only=True):
    """What one rank's device did outside every step.

    ``kernels``: how many belong to no step (not launched within an annotation, or launched before the trace). The times
    are theirs and those of other kernels beyond the times of the steps; they may overlap each other.
    """

    rank: int
    kernels: int
    computing_ms: float
    communication_ms: float
    copy_ms: float
    other_ms: float


class ChosenStep(Record, frozen=True):
    """The step that stands for the capture, and why; ``spread_pct`` is (longest − shortest) ÷ median stage."""

    step: int
    why: str
    ranks: tuple[StepRow, ...]
    slowest_rank: int
    spread_pct: float


class Steps(ChosenStep, frozen=True):
    """The chosen step of every rank, and every other one.

    ``exposed_share`` = captured exposed seconds ÷ step time measured without the profiler, ``agreement`` the largest
    difference between step table and kernels as a share of the stage. ``outside``: of the ranks that did something
    outside every step.
    """

    unprofiled_step_s: float | None
    exposed_share: float | None
    agreement: float | None
    all: tuple[StepRow, ...]
    whole_trace: tuple[StepRow, ...]
    outside: tuple[OutsideRow, ...] = ()


class StageDelta(Record, frozen=True):
    """Δ of two captures' steps (b − a), slowest rank against slowest rank, and what the parts leave over.

    ``closes``: the parts explain Δ of the stage to 0.1 % of the larger of the changes, at least 1 µs.
    """

    ranks: tuple[int, int]
    stage_ms: float
    computing_ms: float
    exposed_ms: float
    overlapped_ms: float
    free_ms: float
    bubble_ms: float
    residual_ms: float
    closes: bool
    host_ms: float = 0.0


class Family(Record, frozen=True):
    """The calls of a family on a communicator that belong to steps, and ``outside_calls`` that belong to none.

    ``union_ms``: at least one runs, ``exposed_ms``: beside no compute.
    """

    family: str
    communicator: str
    calls: int
    calls_per_layer: float | None
    sum_ms: float
    mean_ms: float
    median_ms: float
    max_ms: float
    union_ms: float
    union_over_sum: float | None
    exposed_ms: float | None = None
    outside_calls: int = 0
    outside_ms: float = 0.0


class Overlap(Record, frozen=True):
    """Intersection of two families or communicators ÷ the smaller of them."""

    a: str
    b: str
    share: float


class Stream(Record, frozen=True):
    """What runs on one stream."""

    stream: str
    core: str
    kernels: int
    total_ms: float


class RankCollectives(Record, frozen=True):
    """The collectives of one rank over its ``steps``."""

    rank: int
    families: tuple[Family, ...]
    overlap: tuple[Overlap, ...]
    streams: tuple[Stream, ...]
    steps: int = 1


class Collectives(Record, frozen=True):
    """The collectives of every rank, and how many rows of the profiler's files could not be used."""

    ranks: tuple[RankCollectives, ...]
    rows_read: int
    rows_unusable: int
    unusable_causes: dict[str, int]
    notes: tuple[str, ...]


class Check(Record, frozen=True):
    """One proof: what it is of, whether it holds, and the counts that say so."""

    name: str
    ok: bool
    text: str


class Effect(Record, frozen=True):
    """All proofs that the form was in effect; ``ok`` when each holds. Without it a capture supports no number."""

    ok: bool
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        """Those that do not hold."""
        return tuple(check for check in self.checks if not check.ok)


class Sentence(Record, frozen=True):
    """What one analysis says, in words."""

    about: str
    text: str


class Attribution(FileRecord, frozen=True, kw_only=True, omit_defaults=True):
    """All analyses of one capture, as ``attribution.json`` holds them.

    A ``refused`` capture has a ``reason`` and no analyses. ``missing`` says why an analysis was not made, ``reading``
    one sentence per analysis, ``rows_unusable`` unusable rows by cause. One analysed by hand has no ``window``.
    """

    contract: str | None
    form: str | None
    window: int | None = None
    status: AttributionStatus
    reason: str | None = None
    steps: Steps | None = None
    collectives: Collectives | None = None
    masking: Masking | None = None
    bubbles: Bubbles | None = None
    effect: Effect | None = None
    timeline: Timeline | None = None
    findings: tuple[Finding, ...] | None = None
    missing: dict[str, str] | None = None
    reading: tuple[Sentence, ...] | None = None
    family: str | None = None
    rows_read: int | None = None
    rows_unusable: dict[str, int] | None = None
    notes: tuple[str, ...] | None = None
    capture: Capture | None = None
