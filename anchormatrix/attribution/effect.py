"""Proof that a form took effect: by what was counted in the capture, never by a line that says "enabled"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anchormatrix.attribution.collectives import check_streams, groups_of
from anchormatrix.attribution.findings import rank_list
from anchormatrix.captures.names import UNRECOGNISED
from anchormatrix.captures.table import OUTSIDE, Capture
from anchormatrix.records.attribution import Check, Effect
from anchormatrix.records.form import Form

# NCCL and gloo run an all-to-all and a ring's exchange as grouped send and receive, and older traces say no more.
_POINT_TO_POINT = frozenset(("sendRecv", "batchSendRecv", "send", "receive"))
_ALL_TO_ALL = frozenset(("alltoall", "alltoallv", "alltoallvc"))
_EXPECTED = {
    "tp": (frozenset(("allReduce", "reduceScatter")), "tensor parallelism sums partial results"),
    "usp": (_ALL_TO_ALL | {"sendRecv"}, "Ulysses exchanges heads"),
    "ring": (_POINT_TO_POINT, "a ring passes K and V on"),
    "ag": (frozenset(("allGather",)), "all-gather-KV gathers K and V"),
    "cfg": (frozenset(("allGather", "allReduce", "broadcast", *_POINT_TO_POINT)), "the guidance branches are combined"),
    "pp": (_POINT_TO_POINT, "pipeline stages hand over"),
}
_IN_LAYERS = ("tp", "usp", "ring", "ag")
Calls = Mapping[int, Mapping[str, int]]


def check_effect(
    capture: Capture,
    form: Form | None,
    *,
    layers: int | None = None,
    mask_family: str = "alltoall",
    unmasked_calls: int | None = None,
    captured_ranks: int | None = None,
) -> Effect:
    """Return whether the capture proves that the form was in effect.

    Every degree above 1 must show its kind of collective on every rank, one that works inside the layers at least once
    per layer and pipeline stage when ``layers`` is known (a single gather of the output proves nothing);
    an unequal all-to-all where the equal one is expected fails, as does a masking stream with compute on it. With
    masking, ``unmasked_calls`` (calls of ``mask_family`` per rank of the same form without masking) lets the count
    prove that chunking is active: they must rise. ``captured_ranks`` is how many ranks the engine's profiler writes
    (``None``: all). Without a form only what is wrong under any form is looked for.
    """
    checks = [*_streams(capture), *_recognised(capture)]
    if form is not None:
        calls = {rank: _calls(kernels[kernels["step"] != OUTSIDE]) for rank, kernels in capture.per_rank()}
        checks += [_world(calls, form, captured_ranks), *_degrees(calls, form, layers)]
        if form.mask_chunks > 1 and unmasked_calls:
            checks.append(_masking(calls, mask_family, unmasked_calls))
    return Effect(ok=all(check.ok for check in checks), checks=tuple(checks))


def _calls(kernels: Any) -> dict[str, int]:
    calls: dict[str, int] = {}
    for group in groups_of(kernels):
        calls[group.family] = calls.get(group.family, 0) + len(group.start)
    return calls


def _streams(capture: Capture) -> Iterator[Check]:
    found = "; ".join(f"{rank_list(finding.ranks)}: {finding.text}" for finding in check_streams(capture))
    yield Check("streams", not found, found or "no compute kernel beside the compute stream where collectives run")


def _recognised(capture: Capture) -> Iterator[Check]:
    for rank, kernels in capture.per_rank():
        names = kernels["name"][kernels["family"] == UNRECOGNISED]
        if len(names):
            text = (
                f"rank {rank}: {len(names)} communication rows without a known collective's name, as {names.iloc[0]!r}"
            )
            yield Check("names", False, text)


def _world(calls: Calls, form: Form, captured: int | None) -> Check:
    if captured is not None and captured < form.cards and len(calls) == captured:
        text = f"{rank_list(calls)} of {form.cards} was captured: the engine's profiler writes no other"
        return Check("ranks", True, text)
    if len(calls) == form.cards:
        return Check("ranks", True, f"{form.cards} ranks were captured, as many as the form has")
    return Check("ranks", False, f"the form runs on {form.cards} ranks, the capture has {rank_list(calls)}")


def _degrees(calls: Calls, form: Form, layers: int | None) -> Iterator[Check]:
    for degree, size in form.degrees.items():
        if size == 1:
            continue
        families, why = _EXPECTED[degree]
        least = max(1, (layers or 1) // form.pp) if degree in _IN_LAYERS else 1
        without = [rank for rank, seen in calls.items() if sum(seen.get(family, 0) for family in families) < least]
        name = f"{degree}{size}"
        if not without:
            seen = sorted({family for one in calls.values() for family in families & one.keys()})
            yield Check(name, True, f"{' and '.join(seen)} ran on every rank: {why}")
        elif degree == "usp" and all("allGather" in calls[rank] for rank in without):
            yield Check(name, False, f"{rank_list(without)}: all-gather without any all-to-all, Ulysses is not active")
        else:
            wanted = ", ".join(sorted(families))
            yield Check(name, False, f"{rank_list(without)}: {wanted} ran fewer than {least} times, but {why}")
    if form.usp > 1:
        uneven = {rank: sum(seen.get(name, 0) for name in ("alltoallv", "alltoallvc")) for rank, seen in calls.items()}
        if any(uneven.values()):
            text = (
                f"{max(uneven.values())} alltoallv calls per rank where alltoall is expected, the unequal path is on: "
                "pad each block to the global maximum, rounded to 128 rows"
            )
            yield Check("equal all-to-all", False, text)


def _masking(calls: Calls, family: str, unmasked: int) -> Check:
    fewest = min(seen.get(family, 0) for seen in calls.values())
    if fewest > unmasked:
        return Check(
            "masking", True, f"{fewest} {family} calls per rank, {fewest / unmasked:.3g} times the unmasked form's"
        )
    return Check(
        "masking", False, f"{fewest} {family} calls per rank, {unmasked} without masking: chunking is not active"
    )
