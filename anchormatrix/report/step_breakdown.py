"""Breakdown of a captured step: what the report takes from a form's attribution."""

from __future__ import annotations

from collections.abc import Iterator

from anchormatrix.records.attribution import Attribution, Family, MaskBound, RankBubbles, StepRow, Timeline
from anchormatrix.records.session import CaptureStatus

COLUMNS = ("computing", "exposed", "free", "bubble")


def step_rows(attribution: Attribution) -> tuple[StepRow, ...]:
    """The captured step of every rank; empty when the capture was not analysed."""
    return attribution.steps.ranks if attribution.steps else ()


def part_ms(row: StepRow, part: str) -> float:
    """One of ``COLUMNS`` of a rank's step, in ms."""
    return float(getattr(row, f"{part}_ms"))


def slowest(attribution: Attribution) -> StepRow | None:
    """The rank that figures show: longest stage, and of equal ones the most computing.

    The ranks that wait for it do so inside their collectives, so the most computing marks the one waited for.
    """
    return max(step_rows(attribution), key=lambda rank: (rank.stage_ms, rank.computing_ms), default=None)


def stretch(attribution: Attribution) -> float | None:
    """How many times longer the profiler made the step without its exposed communication, whose seconds stay.

    (captured stage − exposed) ÷ (step measured without the profiler − exposed).
    """
    rank, unprofiled_s = slowest(attribution), unprofiled_step_s(attribution)
    if rank is None or unprofiled_s is None:
        return None
    rest_ms = 1000 * unprofiled_s - rank.exposed_ms
    return (rank.stage_ms - rank.exposed_ms) / rest_ms if rest_ms > 0 else None


def unprofiled_step_s(attribution: Attribution) -> float | None:
    """The step measured without the profiler, in seconds."""
    return attribution.steps.unprofiled_step_s if attribution.steps else None


def exposed_share(attribution: Attribution) -> float | None:
    """Exposed seconds ÷ step measured without the profiler."""
    return attribution.steps.exposed_share if attribution.steps else None


def spread_pct(attribution: Attribution) -> float | None:
    """(longest − shortest stage) ÷ median stage over the ranks, in percent."""
    return attribution.steps.spread_pct if attribution.steps else None


def families(attribution: Attribution) -> Iterator[tuple[int, Family]]:
    """Every collective family with its rank."""
    for rank in attribution.collectives.ranks if attribution.collectives else ():
        yield from ((rank.rank, family) for family in rank.families)


def bounds(attribution: Attribution) -> tuple[MaskBound, ...]:
    """The masking bound of every rank."""
    return attribution.masking.ranks if attribution.masking else ()


def waits(attribution: Attribution) -> tuple[RankBubbles, ...]:
    """Where the compute stream of every rank waited."""
    return attribution.bubbles.ranks if attribution.bubbles else ()


def layer_of(attribution: Attribution) -> tuple[Timeline, float] | None:
    """One layer in time and its duration in ms, where there is one to draw."""
    found = attribution.timeline
    return (found, found.duration_ms) if found and found.lanes and found.duration_ms else None


def on_ramp(attribution: Attribution) -> bool:
    """Whether the capture landed on the ramp, so that only its seconds count."""
    return attribution.capture is not None and attribution.capture.status is CaptureStatus.ON_RAMP


def captured_words(attribution: Attribution) -> str:
    """Where in its session the capture was made."""
    capture = attribution.capture
    if capture is None:
        return ""
    where = f"request {capture.request}" if capture.request is not None else ""
    return ", ".join(word for word in ("" if where in capture.why else where, capture.why, capture.status) if word)


def finding_texts(attribution: Attribution) -> tuple[str, ...]:
    """What the analyses found, and what was noted while reading."""
    return (*(finding.text for finding in attribution.findings or ()), *(attribution.notes or ()))


def rows_unusable(attribution: Attribution) -> int:
    """How many rows of the profiler's files could not be used."""
    return sum((attribution.rows_unusable or {}).values())


def why_not_made(attribution: Attribution, analysis: str) -> str:
    """Why one of the analyses was not made."""
    return (attribution.missing or {}).get(analysis, "")
