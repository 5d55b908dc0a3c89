"""The server's log: groups at its start, then the loop's time of every rank, request by request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from anchormatrix.engines.client import Response
from anchormatrix.engines.logs.lines import plain_lines
from anchormatrix.engines.pairing import one_for_each
from anchormatrix.engines.timing import RankTiming, Request, ServeLog

_STARTED = re.compile(r"started: (\d{1,4}) ranks, tp=(\d{1,4}) usp=(\d{1,4})")
_BEGUN = re.compile(r"request of (\d{1,5}) steps")
_TIMED = re.compile(r"rank (\d{1,4}): loop took (\d{1,9}\.\d{1,9}) s")


def read_log(text: str, responses: Sequence[Response] = ()) -> ServeLog:
    """Read a log. Never raises: a line that is not understood is not used."""
    groups: dict[str, tuple[int, ...]] = {}
    ranks, lines, timed = 0, 0, 0
    requests: list[tuple[int, list[RankTiming]]] = []
    for line in plain_lines(text):
        lines += 1
        if found := _STARTED.search(line):
            ranks = int(found[1])
            groups = {"tp_size": (int(found[2]),), "sp_size": (int(found[3]),)}
        elif found := _BEGUN.search(line):
            requests.append((int(found[1]), []))
        elif (found := _TIMED.search(line)) and requests:
            timed += 1
            seconds = float(found[2])
            requests[-1][1].append(RankTiming(int(found[1]), f"rank {found[1]}", seconds, (seconds,)))
    return ServeLog(
        requests=one_for_each([_request(steps, times, ranks) for steps, times in requests], responses),
        ranks=tuple(f"rank {rank}" for rank in range(ranks)),
        groups=groups,
        applied=(),
        lines=lines,
        unusable_lines=0,
        stage_lines=timed,
    )


def _request(steps: int, times: Sequence[RankTiming], ranks: int) -> Request:
    """A request counts when every rank has timed it; its time is the fastest rank's, for the others wait for it."""
    whole = len(times) == ranks
    return Request(
        index=0,
        steps=steps,
        iterations=steps,
        denominator="requested",
        diffuse_s=min((timing.diffuse_s for timing in times), default=None) if whole else None,
        encode_s=None,
        decode_s=None,
        forward_s=None,
        ranks=tuple(times) if whole else (),
        bars=(),
        response="sent" if whole else "unknown",
    )
