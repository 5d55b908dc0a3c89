"""Analyses in words: what follows from the numbers of each, as the commands and the report say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.attribution.slowest import EQUAL_PCT
from anchormatrix.records.attribution import Collectives, Family, Sentence
from anchormatrix.records.waits import MaskBound, RankBubbles

SERIAL = 0.98  # union ÷ sum from here on: one call at a time
_HIDDEN_BY_HEADS = ("alltoall", "alltoallv", "allgather")  # families that carry heads or their keys and values


def readings(
    longest: Sequence[Mapping[str, int]],
    exposed_share: float | None,
    collectives: Collectives,
    bounds: Sequence[MaskBound],
    found: Sequence[RankBubbles],
) -> tuple[Sentence, ...]:
    """Return a sentence for the step, the collectives, the bound and the bubbles of the slowest rank.

    ``longest``: the step on every rank that is equal to the slowest, the one shown first.
    """
    rank = longest[0]["rank"]
    families = next((one.families for one in collectives.ranks if one.rank == rank), ())
    sentences = {"steps": _step(longest, exposed_share), "collectives": collectives_words(families)}
    for bound in bounds:
        if bound.rank == rank:
            sentences["masking"] = masking_words(bound)
    for one in found:
        if one.rank == rank:
            sentences["bubbles"] = waits_words(one)
    return tuple(Sentence(about=about, text=f"{text[:1].upper()}{text[1:]}.") for about, text in sentences.items())


def _step(longest: Sequence[Mapping[str, int]], share: float | None) -> str:
    worst, *equal = longest
    text = (
        f"The slowest rank, {worst['rank']}, {_parts(worst)} of its captured step of {worst['stage_ns'] / 1e6:.1f} ms"
    )
    if equal:
        least = equal[-1]
        text += (
            f" (of {len(longest)} ranks equal within {EQUAL_PCT:g} % the one that computes most; rank {least['rank']}, "
            f"of {least['stage_ns'] / 1e6:.1f} ms, {_parts(least)})"
        )
    if share is not None:
        text += f"; exposed communication is {share:.1%} of the step measured without the profiler"
    return text


def _parts(row: Mapping[str, int]) -> str:
    stage = row["stage_ns"] or 1
    shares = {"computes": "computing_ns", "waits for communication": "exposed_ns", "idles": "free_ns"}
    if row.get("host_ns"):
        shares["spends on host overhead"] = "host_ns"
    return ", ".join(f"{verb} {row[part] / stage:.1%}" for verb, part in shares.items())


def collectives_words(families: Sequence[Family]) -> str:
    """The family of one rank that holds most time, and whether its calls run one at a time."""
    if not any(family.calls for family in families):
        return "no collective ran in the steps" if families else "no collective ran"
    largest = max(families, key=lambda family: family.sum_ms)
    total = sum(family.sum_ms for family in families) or 1
    how = (
        "one at a time, so this is transfer time and only a smaller payload shortens it"
        if (largest.union_over_sum or 0) >= SERIAL
        else "partly at the same time, so the sum is occupancy and not exposure"
    )
    group = f"{largest.family} on communicator {largest.communicator}" if largest.communicator else largest.family
    share = f"{100 * largest.sum_ms / total:.0f} % of all collective time"
    return f"{group} holds {share} ({largest.sum_ms:.1f} ms in {largest.calls} calls), {how}"


def masking_words(bound: MaskBound) -> str:
    """Whether more masking is to be had on a rank, and how."""
    if bound.chunks <= 1 and bound.family and bound.family.lower() not in _HIDDEN_BY_HEADS:
        return f"one chunk, so masking is off; chunks of heads cannot hide {bound.family}"
    if bound.chunks <= 1:
        what = bound.family or "it"
        could = (
            f"is long enough to hide up to 1 − 1/n of {what} with n chunks"
            if bound.f_ms >= bound.c_ms
            else f"is too short to hide {what}"
        )
        return f"one chunk, so masking is off and nothing can be hidden; compute {could}"
    if bound.achievement is None:
        return "the bound is unknown"
    reached = (
        f"attention hides {100 * bound.under_attention:.0f} % of {bound.family}, {100 * bound.achievement:.0f} % of "
        f"what {bound.chunks} chunks allow ({100 * bound.bound:.0f} %)"
    )
    if bound.achievement > 1:
        return f"{reached}, so inputs and capture contradict each other (see the findings)"
    if bound.f_total_ms > bound.ideal * bound.c_total_ms:
        return f"{reached}; attention is long enough, so more chunks would raise the bound"
    return f"{reached}; attention is too short to hide it (F < C), so only a smaller payload helps"


def waits_words(found: RankBubbles) -> str:
    """What the compute stream of a rank waits for."""
    if found.gap_ms <= 0:
        return "the compute stream has no gap between its first and its last kernel of a step"
    text = (
        f"on rank {found.rank} the compute stream waits {found.gap_ms:.1f} of {found.span_ms:.1f} ms: "
        f"{100 * found.gap_released_ms / found.gap_ms:.0f} % of that in gaps that end when a collective does, "
        f"{100 * found.gap_empty_ms / found.gap_ms:.0f} % with nothing running anywhere, the most that launch-side "
        "work can win"
    )
    if not found.groups:
        return text
    worst = max(found.groups, key=lambda group: group.exposed_ms)
    return f"{text}; most exposed is {worst.group} with {100 * worst.exposed_share:.0f} % of its time in the gaps"
