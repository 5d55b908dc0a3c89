"""The breakdown of a form's step, as the capture's analyses told it: values and their reader."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from anchormatrix.report.source import Fields, plain, sentence

COLUMNS = ("computing", "exposed", "free", "bubble")


@dataclass(frozen=True)
class RankStep:
    """One rank's captured step, in milliseconds."""

    rank: int
    computing: float
    exposed: float
    overlapped: float
    free: float
    bubble: float
    stage: float


@dataclass(frozen=True)
class Family:
    """One collective family on one communicator, on one rank."""

    rank: int
    family: str
    communicator: str
    calls: int
    calls_per_layer: float | None
    sum_ms: float
    median_ms: float | None
    union_over_sum: float | None


@dataclass(frozen=True)
class Bound:
    """What masking could hide of a family and what it did, on one rank; shares are fractions of one."""

    rank: int
    family: str
    chunks: int
    c_ms: float
    f_ms: float
    bound: float | None
    measured: float | None
    achievement: float | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Bubbles:
    """Where the compute stream waited, on one rank, in milliseconds."""

    rank: int
    span_ms: float
    gap_ms: float
    released_ms: float
    empty_ms: float


@dataclass(frozen=True)
class Segment:
    """A piece of a lane: ``start_ms`` counts from the layer's start."""

    start_ms: float
    duration_ms: float
    kind: str
    name: str


@dataclass(frozen=True)
class Layer:
    """One layer of one rank as lanes of segments."""

    rank: int
    layer: str
    duration_ms: float
    lanes: tuple[tuple[str, tuple[Segment, ...]], ...]


@dataclass(frozen=True)
class Anatomy:
    """All analyses of one form's capture. Empty tuples are analyses that were not made."""

    status: str
    reason: str
    captured: str
    on_ramp: bool
    rows_read: int
    rows_unusable: int
    step: str
    unprofiled_step_s: float | None
    exposed_share: float | None
    ranks: tuple[RankStep, ...]
    families: tuple[Family, ...]
    bounds: tuple[Bound, ...]
    bubbles: tuple[Bubbles, ...]
    checks: tuple[tuple[str, bool, str], ...]
    findings: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    layer: Layer | None

    @property
    def slowest(self) -> RankStep | None:
        """The rank that figures show: longest stage, and of equal ones the most computing.

        The ranks that wait for it do so inside their collectives, so the most computing marks the one waited for.
        """
        return max(self.ranks, key=lambda rank: (rank.stage, rank.computing), default=None)

    @property
    def stretch(self) -> float | None:
        """How many times longer the profiler made the step without its exposed communication, whose seconds stay.

        (captured stage − exposed) ÷ (step measured without the profiler − exposed).
        """
        rank = self.slowest
        if rank is None or self.unprofiled_step_s is None:
            return None
        rest_ms = 1000 * self.unprofiled_step_s - rank.exposed
        return (rank.stage - rank.exposed) / rest_ms if rest_ms > 0 else None

    def why_not(self, analysis: str) -> str:
        """Why one of the analyses was not made."""
        return dict(self.missing).get(analysis, "")

    @property
    def spread_pct(self) -> float | None:
        """(longest − shortest stage) ÷ median stage over the ranks, in percent."""
        stages = [rank.stage for rank in self.ranks]
        middle = median(stages) if stages else 0
        return 100 * (max(stages) - min(stages)) / middle if middle else None


def anatomy_from(fields: Fields) -> Anatomy:
    """Take the report's keys from ``attribution.json``."""
    steps, capture, effect = fields.child("steps"), fields.child("capture"), fields.child("effect")
    timeline = fields.child("timeline")
    return Anatomy(
        status=fields.text("status", "analysed"),
        reason=fields.text("reason", ""),
        captured=_captured(capture),
        on_ramp=capture.text("status", "") == "on_ramp",
        rows_read=fields.integer("rows_read", 0),
        rows_unusable=_unusable_rows(fields),
        step=steps.text("step", ""),
        unprofiled_step_s=steps.maybe("unprofiled_step_s"),
        exposed_share=steps.maybe("exposed_share"),
        ranks=tuple(_rank_step(rank) for rank in steps.children("ranks")),
        families=tuple(
            _family(rank.integer("rank"), family)
            for rank in fields.child("collectives").children("ranks")
            for family in rank.children("families")
        ),
        bounds=tuple(_bound(bound) for bound in fields.child("masking").children("ranks")),
        bubbles=tuple(_bubbles(bubbles) for bubbles in fields.child("bubbles").children("ranks")),
        checks=tuple(
            (check.text("name", "check"), check.flag("ok"), check.text("text", ""))
            for check in effect.children("checks")
        ),
        findings=(*fields.texts("findings"), *fields.texts("notes")),
        missing=tuple((name, plain(reason)) for name, reason in fields.child("missing").values.items()),
        layer=_layer(timeline) if "lanes" in timeline else None,
    )


def _captured(capture: Fields) -> str:
    if not capture.values:
        return ""
    where = f"request {capture.text('request')}" if "request" in capture else ""
    why = capture.text("why", "")
    return ", ".join(word for word in ("" if where in why else where, why, capture.text("status", "")) if word)


def _unusable_rows(fields: Fields) -> int:
    found = fields.values.get("rows_unusable")
    if isinstance(found, dict):
        return sum(count for count in found.values() if isinstance(count, int))
    return fields.integer("rows_unusable", 0)


def _rank_step(rank: Fields) -> RankStep:
    return RankStep(
        rank=rank.integer("rank"),
        computing=rank.number("computing_ms"),
        exposed=rank.number("exposed_ms"),
        overlapped=rank.maybe("overlapped_ms") or 0.0,
        free=rank.number("free_ms"),
        bubble=rank.maybe("bubble_ms") or 0.0,
        stage=rank.number("stage_ms"),
    )


def _family(rank: int, family: Fields) -> Family:
    return Family(
        rank=rank,
        family=family.text("family"),
        communicator=family.text("communicator", ""),
        calls=family.integer("calls"),
        calls_per_layer=family.maybe("calls_per_layer"),
        sum_ms=family.number("sum_ms"),
        median_ms=family.maybe("median_ms"),
        union_over_sum=family.maybe("union_over_sum"),
    )


def _bound(bound: Fields) -> Bound:
    return Bound(
        rank=bound.integer("rank"),
        family=bound.text("family", ""),
        chunks=bound.integer("chunks", 1),
        c_ms=bound.number("c_ms"),
        f_ms=bound.number("f_ms"),
        bound=bound.maybe("bound"),
        measured=bound.maybe("measured"),
        achievement=bound.maybe("achievement"),
        warnings=tuple(sentence(warning) for warning in bound.items("warnings")),
    )


def _bubbles(bubbles: Fields) -> Bubbles:
    return Bubbles(
        rank=bubbles.integer("rank"),
        span_ms=bubbles.number("span_ms"),
        gap_ms=bubbles.number("gap_ms"),
        released_ms=bubbles.number("gap_released_ms"),
        empty_ms=bubbles.number("gap_empty_ms"),
    )


def _layer(timeline: Fields) -> Layer:
    return Layer(
        rank=timeline.integer("rank", 0),
        layer=timeline.text("layer", ""),
        duration_ms=timeline.number("duration_ms"),
        lanes=tuple(
            (
                lane.text("name"),
                tuple(
                    Segment(
                        segment.number("start_ms"),
                        segment.number("duration_ms"),
                        segment.text("kind"),
                        segment.text("name", ""),
                    )
                    for segment in lane.children("segments")
                ),
            )
            for lane in timeline.children("lanes")
        ),
    )
