"""One sentence per analysis that follows from its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.attribution.collectives import SERIAL
from anchormatrix.records.attribution import Collectives, Family, MaskBound, RankBubbles, Sentence


def readings(
    worst: Mapping[str, int],
    exposed_share: float | None,
    collectives: Collectives,
    bounds: Sequence[MaskBound],
    found: Sequence[RankBubbles],
) -> tuple[Sentence, ...]:
    """Return a sentence for the step, the collectives, the bound and the bubbles of the slowest rank."""
    rank = worst["rank"]
    families = next((one.families for one in collectives.ranks if one.rank == rank), ())
    sentences = {"steps": _step(worst, exposed_share), "collectives": _collectives(families)}
    for bound in bounds:
        if bound.rank == rank:
            sentences["masking"] = _bound(bound)
    for one in found:
        if one.rank == rank:
            sentences["bubbles"] = _bubbles(one)
    return tuple(Sentence(about=about, text=text) for about, text in sentences.items() if text)


def _step(worst: Mapping[str, int], share: float | None) -> str:
    stage = worst["stage_ns"] or 1
    parts = {
        "computes": worst["computing_ns"],
        "waits for communication": worst["exposed_ns"],
        "idles": worst["free_ns"],
    }
    listed = ", ".join(f"{verb} {value / stage:.1%}" for verb, value in parts.items())
    text = f"The slowest rank, {worst['rank']}, {listed} of its captured step of {worst['stage_ns'] / 1e6:.1f} ms"
    if share is not None:
        text += f"; exposed communication is {share:.1%} of the step measured without the profiler"
    return text + "."


def _collectives(families: Sequence[Family]) -> str:
    if not families:
        return "No collective ran."
    largest = max(families, key=lambda family: family.sum_ms)
    total = sum(family.sum_ms for family in families) or 1
    how = (
        "one at a time, so it is transfer time and only a smaller payload shortens it"
        if (largest.union_over_sum or 0) >= SERIAL
        else "partly at the same time, so its sum is occupancy and not exposure"
    )
    group = f"{largest.family} on communicator {largest.communicator}" if largest.communicator else largest.family
    return f"{group} is {largest.sum_ms / total:.0%} of all collective time in {largest.calls} calls, {how}."


def _bound(bound: MaskBound) -> str:
    hidden = f"{bound.measured:.0%} of communication is hidden"
    if bound.achievement is None:
        return f"{hidden}; {bound.family} is not chunked, so there is no bound to hold it against."
    reach = f"{hidden}; attention hides {bound.under_attention:.0%} of {bound.family}, {bound.achievement:.0%} of what "
    reach += f"{bound.chunks} chunks allow ({bound.bound:.0%})"
    if bound.achievement > 1:
        return f"{reach}: inputs and capture contradict each other, see the warnings."
    if bound.f_total_ms <= bound.ideal * bound.c_total_ms:
        return f"{reach}; c/f is {bound.c_over_f:.2f}, so more chunks do not help and only a smaller payload does."
    return f"{reach}; attention is long enough for these chunks (c/f {bound.c_over_f or 0:.2f})."


def _bubbles(found: RankBubbles) -> str:
    if not found.gap_ms:
        return "The compute stream never waits."
    released, empty = found.gap_released_ms / found.gap_ms, found.gap_empty_ms / found.span_ms
    text = (
        f"The compute stream waits {found.gap_ms:.2f} ms; {released:.0%} of it ended when a collective did, and "
        f"{empty:.1%} of the step nothing ran anywhere, the most that launch-side work can win"
    )
    if not found.groups:
        return text + "."
    worst = max(found.groups, key=lambda group: group.exposed_ms)
    return f"{text}; most exposed is {worst.group} with {worst.exposed_share:.0%} of its time in the gaps."
