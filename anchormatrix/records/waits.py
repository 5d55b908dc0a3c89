"""What hides communication at best, and where the compute stream of a rank waits: parts of the attribution file."""

from __future__ import annotations

import msgspec

from anchormatrix.records.base import Record
from anchormatrix.records.finding import Finding


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
