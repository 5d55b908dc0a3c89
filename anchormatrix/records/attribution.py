"""The attribution file: where the time of one captured step goes, on every rank, in ms and shares of one. What is
``None`` or not set was not known.
"""

from __future__ import annotations

import enum

import msgspec

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.session import Capture


class AttributionStatus(enum.StrEnum):
    """Whether a capture could be analysed."""

    ANALYSED = "analysed"
    REFUSED = "refused"


class Finding(Record, frozen=True):
    """One thing a person should know: a ``kind`` to match on, a sentence to read, the ranks it was seen on."""

    kind: str
    text: str
    ranks: tuple[int, ...] = ()


class StepRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One rank's step in parts; ``communication_ms`` = exposed + overlapped.

    ``source`` says whether the profiler's step table or the kernels tell it, ``step`` which step it is.
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
    source: str = ""


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
    difference between step table and kernels as a share of the stage.
    """

    unprofiled_step_s: float | None
    exposed_share: float | None
    agreement: float | None
    all: tuple[StepRow, ...]
    whole_trace: tuple[StepRow, ...]


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


class Family(Record, frozen=True):
    """The calls of a family on a communicator. ``union_ms``: at least one runs, ``exposed_ms``: beside no compute."""

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
    """The collectives of one rank."""

    rank: int
    families: tuple[Family, ...]
    overlap: tuple[Overlap, ...]
    streams: tuple[Stream, ...]


class Collectives(Record, frozen=True):
    """The collectives of every rank, and how many rows of the profiler's files could not be used."""

    ranks: tuple[RankCollectives, ...]
    rows_read: int
    rows_unusable: int
    unusable_causes: dict[str, int]
    notes: tuple[str, ...]


class MaskBound(Record, frozen=True):
    """How much of a family's communication attention can hide at best on one rank, and how much it did hide.

    C and F are communication and attention, c and f those of one chunk: per layer, or per step when the layers are not
    known. ``estimate`` is the source document's. ``measured`` is Overlapped ÷ Communication of the step, whose
    ``exposed_ms`` this is; ``measured_family`` the family's hidden share, ``under_attention`` what attention hides of
    it, ``achievement`` that ÷ ``bound``. ``…_timed``: with attention as long as without the profiler.
    """

    rank: int
    family: str
    communicator: str
    chunks: int
    c_total_ms: float = msgspec.field(name="C_ms")
    f_total_ms: float = msgspec.field(name="F_ms")
    c_ms: float
    f_ms: float
    c_over_f: float | None
    ideal: float
    bound: float
    estimate: float
    measured: float
    measured_family: float | None
    under_attention: float
    achievement: float | None
    exposed_ms: float
    warnings: tuple[str, ...]
    f_timed_ms: float | msgspec.UnsetType = msgspec.field(name="F_timed_ms", default=msgspec.UNSET)
    c_over_f_timed: float | msgspec.UnsetType | None = msgspec.UNSET
    bound_timed: float | msgspec.UnsetType = msgspec.UNSET


class Masking(Record, frozen=True):
    """The masking bound of every rank."""

    ranks: tuple[MaskBound, ...]


class GapShare(Record, frozen=True):
    """How much of a group's time lies in the gaps of the compute stream, and under attention."""

    group: str
    calls: int
    total_ms: float
    exposed_ms: float
    exposed_share: float
    overlap_attention_ms: float


class ProducerLag(Record, frozen=True):
    """How long an attention kernel's own input had been there when it started; ``median`` in ms."""

    median: float | None
    within_100us_share: float | None


class RankBubbles(Record, frozen=True):
    """Where the compute stream of one rank waited.

    ``findings``: a split that was refused, and why there is no lag.
    """

    rank: int
    span_ms: float
    busy_ms: float
    gap_ms: float
    gap_with_collective_ms: float
    gap_empty_ms: float
    gap_released_ms: float
    groups: tuple[GapShare, ...]
    producer_lag_ms: ProducerLag
    findings: tuple[Finding, ...]


class Bubbles(Record, frozen=True):
    """The waits of every rank."""

    ranks: tuple[RankBubbles, ...]


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


class Segment(Record, frozen=True):
    """A piece of a lane; ``start_ms`` counts from the layer's start."""

    start_ms: float
    duration_ms: float
    kind: str
    name: str


class Lane(Record, frozen=True):
    """The compute stream, or one communicator."""

    name: str
    segments: tuple[Segment, ...]


class Timeline(Record, frozen=True, omit_defaults=True):
    """One layer of one rank as lanes of segments; without any key when there is none."""

    rank: int | None = None
    step: int | None = None
    layer: str = ""
    duration_ms: float | None = None
    lanes: tuple[Lane, ...] = ()


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
