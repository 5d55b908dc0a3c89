"""Pairs of what was asked and what a log tells, in order, whatever the log lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anchormatrix.engines.client import Response
from anchormatrix.engines.timing import Request
from anchormatrix.records.requests import RequestStatus

_STATES = {RequestStatus.OK: "sent", RequestStatus.LOST: "lost"}


def one_for_each(requests: Sequence[Request], responses: Sequence[Response]) -> tuple[Request, ...]:
    """One request for each response, in their order and unknown where the log lost it, then those not answered yet."""
    places = paired([response.steps for response in responses], [request.steps for request in requests])
    answered = [
        requests[place] if place is not None else Request.unknown(response.steps, _STATES.get(response.status, "error"))
        for place, response in zip(places, responses, strict=True)
    ]
    waiting = requests[max((place + 1 for place in places if place is not None), default=0) :]
    return tuple(replace(request, index=index) for index, request in enumerate((*answered, *waiting)))


def paired(asked: Sequence[int], told: Sequence[int]) -> tuple[int | None, ...]:
    """For each request asked for, by its steps, the place of its record among those told, or ``None``.

    A log that lost the beginning of a request tells of fewer than were asked: the longest common subsequence of step
    counts leaves the lost ones without a record instead of shifting all that follow.
    """
    n, m = len(asked), len(told)
    best = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            same = asked[i] == told[j]
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + 1 if same else 0)
    pairs: list[int | None] = []
    j = 0
    for i in range(n):
        while j < m and best[i][j] == best[i][j + 1] and not _pair(asked, told, best, i, j):
            j += 1
        if j < m and _pair(asked, told, best, i, j):
            pairs.append(j)
            j += 1
        else:
            pairs.append(None)
    return tuple(pairs)


def ambiguous(asked: Sequence[int], told: Sequence[int]) -> frozenset[int]:
    """The requests asked for that may be another record as well: those that pair otherwise from the end."""
    first, last = paired(asked, told), paired(asked[::-1], told[::-1])[::-1]
    mirrored = (None if place is None else len(told) - 1 - place for place in last)
    return frozenset(i for i, (one, other) in enumerate(zip(first, mirrored, strict=True)) if one != other)


def _pair(asked: Sequence[int], told: Sequence[int], best: list[list[int]], i: int, j: int) -> bool:
    return asked[i] == told[j] and best[i][j] == best[i + 1][j + 1] + 1
