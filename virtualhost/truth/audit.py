"""Logs of the all-to-all transport audit: what each rank sent to and received from each other, and what goes wrong.

One line per rank, call and chunk: ``A2AUD rank=0 call=12 chunk=3 sent=11,22 got=11,33 spre=11,22 spost=11,22``.
``sent`` and ``spre`` are the fingerprints of the blocks for each destination before the launch, ``spost`` those at the
end, ``got`` those of the blocks received from each source.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

FAULTS = ("rewritten", "placement", "packing", "missing")


@dataclass
class AuditLine:
    """One rank's fingerprints of one call and chunk, each list ordered by the other rank."""

    rank: int
    call: int
    chunk: int
    sent: list[int]
    got: list[int] = field(default_factory=list)
    spost: list[int] = field(default_factory=list)

    def text(self) -> str:
        """The line as logged."""
        lists = {"sent": self.sent, "got": self.got, "spre": self.sent, "spost": self.spost}
        values = " ".join(f"{name}={','.join(map(str, found))}" for name, found in lists.items())
        return f"A2AUD rank={self.rank} call={self.call} chunk={self.chunk} {values}"


@dataclass(frozen=True)
class Audit:
    """Logs of all ranks (lines by rank) and what a right reconciliation counts in them."""

    logs: dict[int, list[str]]
    truth: dict[str, Any]


def audit(ranks: int, calls: int, chunks: int = 1, *, fault: str | None = None, seed: int = 1) -> Audit:
    """Return the logs of ``calls`` all-to-alls; ``fault`` strikes in the last call and chunk, on the highest ranks.

    ``rewritten``: the sender overwrites its block for a peer after the launch, so the peer gets the new content.
    ``placement``: two received blocks change places. ``packing``: a rank's own block is not what it packed.
    ``missing``: the last rank's line is absent, so its legs can only be counted as missing.
    """
    if fault is not None and fault not in FAULTS:
        raise ValueError(f"unknown transport fault {fault!r}; one of {', '.join(FAULTS)}")
    if ranks < (3 if fault == "placement" else 2):
        raise ValueError("an all-to-all needs two ranks, a placement fault three")
    draw = random.Random(seed)
    lines: list[AuditLine] = []
    for call in range(calls):
        for chunk in range(chunks):
            lines += _faithful(draw, ranks, call, chunk)
    last = lines[-ranks:]
    wrong = _strike(last, fault, draw) if fault else []
    if fault == "missing":
        lines.remove(last[-1])
    legs = calls * chunks * ranks * ranks
    missing = 2 * ranks - 1 if fault == "missing" else 0
    truth = {
        "fault": fault,
        "legs": legs,
        "missing": missing,
        "unequal": len(wrong),
        "equal": legs - missing - len(wrong),
        "wrong_legs": [{"call": calls - 1, "chunk": chunks - 1, "src": src, "dst": dst} for src, dst in wrong],
        "rewritten_blocks": 1 if fault == "rewritten" else 0,
        "self_wrong": 1 if fault == "packing" else 0,
    }
    logs = {rank: [line.text() for line in lines if line.rank == rank] for rank in range(ranks)}
    return Audit(logs, truth)


def _faithful(draw: random.Random, ranks: int, call: int, chunk: int) -> list[AuditLine]:
    found = []
    for rank in range(ranks):
        sent = [draw.randrange(1, 1 << 31) for _ in range(ranks)]
        found.append(AuditLine(rank, call, chunk, sent, spost=list(sent)))
    for line in found:
        line.got = [source.sent[line.rank] for source in found]
    return found


def _strike(lines: Sequence[AuditLine], fault: str, draw: random.Random) -> list[tuple[int, int]]:
    """Apply a fault to the lines of one call; return the legs (source, destination) that do not reconcile."""
    last = lines[-1]
    if fault == "rewritten":
        last.spost[0] = lines[0].got[last.rank] = draw.randrange(1 << 31, 1 << 32)
        return [(last.rank, 0)]
    if fault == "placement":
        last.got[0], last.got[1] = last.got[1], last.got[0]
        return [(0, last.rank), (1, last.rank)]
    if fault == "packing":
        last.got[last.rank] = draw.randrange(1 << 31, 1 << 32)
        return [(last.rank, last.rank)]
    return []
