"""Did the form take effect? Proof by what was counted in the capture, never by a line that says "enabled"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anchormatrix.attribution.collectives import check_streams, groups_of
from anchormatrix.attribution.findings import Finding, by_text, rank_list
from anchormatrix.captures.names import UNRECOGNISED
from anchormatrix.captures.table import Capture
from anchormatrix.forms import Form

# NCCL and gloo run an all-to-all and a ring's exchange as grouped send and receive, and older traces say no more.
_POINT_TO_POINT = frozenset(("sendRecv", "batchSendRecv", "send", "receive"))
_ALL_TO_ALL = frozenset(("alltoall", "alltoallv", "alltoallvc"))
_EXPECTED = {
    "tp": (frozenset(("allReduce", "reduceScatter")), "tensor parallelism sums partial results (allReduce)"),
    "usp": (_ALL_TO_ALL | {"sendRecv"}, "Ulysses exchanges heads (alltoall)"),
    "ring": (_POINT_TO_POINT, "a ring passes K and V on (send and receive)"),
    "ag": (frozenset(("allGather",)), "all-gather-KV gathers K and V (allGather)"),
    "cfg": (frozenset(("allGather", "allReduce", "broadcast", *_POINT_TO_POINT)), "guidance branches are combined"),
    "pp": (_POINT_TO_POINT, "pipeline stages hand over (send and receive)"),
}


@dataclass(frozen=True)
class Effect:
    """``ok``: nothing contradicts the form. ``findings``: what does, and on which ranks."""

    ok: bool
    findings: tuple[Finding, ...]


def check_effect(
    capture: Capture, form: Form | None, *, mask_group: str = "alltoall", unmasked_calls: int | None = None
) -> Effect:
    """Return whether the capture proves that the form was in effect.

    Every degree above 1 must show its kind of collective on every rank; an unequal all-to-all where the equal one is
    expected is a finding, as is a masking stream with compute on it. With masking, ``unmasked_calls`` (calls of
    ``mask_group`` per rank in the same form without masking) lets the count prove that chunking is active.
    Without a form only what is wrong under any form is looked for.
    """
    findings = list(check_streams(capture)) + list(_unrecognised(capture))
    if form is not None:
        findings += _world(capture, form)
        for rank, kernels in capture.per_rank():
            calls: dict[str, int] = {}
            for group in groups_of(kernels):
                calls[group.family] = calls.get(group.family, 0) + len(group.start)
            findings += _of_rank(rank, form, calls)
            if form.mask_chunks > 1 and unmasked_calls and calls.get(mask_group, 0) <= unmasked_calls:
                text = (
                    f"{calls.get(mask_group, 0)} {mask_group} calls, as many as without masking: chunking is not active"
                )
                findings.append(Finding("masking_inactive", text, (rank,)))
    joined = by_text(findings)
    return Effect(not joined, tuple(joined))


def _world(capture: Capture, form: Form) -> Iterator[Finding]:
    seen = len(capture.ranks)
    if seen != form.cards:
        text = f"{form.name} runs on {form.cards} ranks, the capture has {seen} ({rank_list(capture.ranks)})"
        yield Finding("ranks", text)


def _of_rank(rank: int, form: Form, calls: dict[str, int]) -> Iterator[Finding]:
    for degree, size in form.degrees.items():
        families, why = _EXPECTED[degree]
        if size > 1 and not families & calls.keys():
            if degree == "usp" and "allGather" in calls:
                text = f"usp{size} but all-gather without any all-to-all: Ulysses is not active"
                yield Finding("ulysses_inactive", text, (rank,))
            else:
                text = f"{degree}{size} but none of its collectives ran: {why}"
                yield Finding("collective_missing", text, (rank,))
    uneven = sorted(calls.keys() & {"alltoallv", "alltoallvc"})
    if form.usp > 1 and uneven:
        text = (
            f"{calls[uneven[0]]} {uneven[0]} calls where alltoall is expected: the unequal path is in use; pad each block "
            "to the global maximum, rounded to 128 rows, to use the equal one"
        )
        yield Finding("unequal_alltoall", text, (rank,))


def _unrecognised(capture: Capture) -> Iterator[Finding]:
    for rank, kernels in capture.per_rank():
        names = kernels["name"][kernels["family"] == UNRECOGNISED]
        if len(names):
            text = f"{len(names)} communication rows have no known collective's name, the first is {names.iloc[0]!r}"
            yield Finding("unrecognised_collective", text, (rank,))
