"""Transport audit of the all-to-all: is what every rank received what the others sent to it?

Each rank logs fingerprints per call and chunk: ``A2AUD rank=0 call=12 chunk=3 sent=11,22 got=11,33 spre=11,22
spost=11,22``; ``sent``, ``spre`` and ``spost`` by destination, ``got`` by source. The last two, the send buffer before
and after, are optional: a log has them on all its lines or on none, so a line with fewer than others is cut off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anchormatrix.errors import InputError

REWRITTEN, PLACEMENT, PACKING, MISSING = FAULTS = ("rewritten", "placement", "packing", "missing")
MEANING = {
    REWRITTEN: "the send buffer was rewritten after the launch",
    PLACEMENT: "the send buffer was stable, the blocks arrived in the wrong place",
    PACKING: "a rank's own block is wrong, so it was packed wrongly before any transport",
    MISSING: "a leg was not logged on both sides, so nothing is known of it",
}
_LINE = re.compile(
    r"A2AUD rank=(\d{1,6}) call=(\d{1,12}) chunk=(\d{1,9})"
    r" sent=([^\s=]+) got=([^\s=]+)(?: spre=([^\s=]+))?(?: spost=([^\s=]+))?(?=\s|$)"
)


@dataclass(frozen=True)
class AuditLine:
    """One rank's fingerprints of one call and chunk; ``before`` and ``after`` are empty where they are not logged."""

    sent: tuple[str, ...]
    got: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def fields(self) -> int:
        """How many of the optional fields the line has."""
        return bool(self.before) + bool(self.after)


@dataclass(frozen=True)
class Leg:
    """One block that does not reconcile: from ``source`` to ``destination`` in a call and chunk."""

    fault: str
    call: int
    chunk: int
    source: int
    destination: int
    sent: str | None
    got: str | None


@dataclass(frozen=True)
class Audit:
    """What the logs add up to. ``legs`` = equal + unequal + missing, every source and destination of every call and
    chunk; ``rewritten_blocks`` counts send blocks that changed between launch and end, noticed or not."""

    ranks: tuple[int, ...]
    calls: int
    chunks: int
    legs: int
    equal: int
    self_wrong: int
    rewritten_blocks: int
    faults: tuple[Leg, ...]
    lines: int
    unusable_lines: int

    @property
    def missing(self) -> int:
        """Legs that were not logged on both sides."""
        return sum(leg.fault == MISSING for leg in self.faults)

    @property
    def unequal(self) -> int:
        """Legs whose fingerprints differ."""
        return len(self.faults) - self.missing

    @property
    def ok(self) -> bool:
        """Every leg was logged and equal, and no send block changed."""
        return not self.faults and not self.rewritten_blocks

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; of each fault its count and first leg."""
        first: dict[str, Leg] = {}
        for leg in self.faults:
            first.setdefault(leg.fault, leg)
        counts = Counter(leg.fault for leg in self.faults)
        return {
            "ok": self.ok,
            "ranks": list(self.ranks),
            "calls": self.calls,
            "chunks": self.chunks,
            "legs": {"checked": self.legs, "equal": self.equal, "unequal": self.unequal, "missing": self.missing},
            "self_legs_wrong": self.self_wrong,
            "rewritten_blocks": self.rewritten_blocks,
            "faults": [
                {
                    "kind": kind,
                    "meaning": MEANING[kind],
                    "count": counts[kind],
                    "first": {
                        "call": leg.call,
                        "chunk": leg.chunk,
                        "src": leg.source,
                        "dst": leg.destination,
                        "sent": leg.sent,
                        "got": leg.got,
                    },
                }
                for kind, leg in first.items()
            ],
            "lines": self.lines,
            "unusable_lines": self.unusable_lines,
        }


def reconcile_transport(lines: Iterable[str]) -> Audit:
    """Reconcile ``sent[source → destination] = got[destination ← source]`` over all ranks, calls and chunks.

    A leg that differs is a packing fault when it is a rank's own, the sender's rewritten buffer when its fingerprints
    before and after differ, else placement. A line that is cut, interleaved with another, or contradicts an earlier
    line of the same rank, call and chunk is unusable and counted. Raises :class:`InputError` without any audit line.
    """
    table: dict[tuple[int, int], dict[int, AuditLine]] = {}
    read = [_parse(text) for text in lines if "A2AUD" in text]
    total, unusable = len(read), 0
    widest = max((line.fields for _, _, line in filter(None, read)), default=0)
    for parsed in read:
        if parsed is None or parsed[2].fields < widest:
            unusable += 1
            continue
        rank, key, line = parsed
        known = table.setdefault(key, {}).setdefault(rank, line)
        unusable += known != line
    if not table:
        raise InputError(
            f"no usable A2AUD line ({unusable} unusable)",
            where="transport audit",
            todo="was the audit on when serving?",
        )
    return _audit(table, total, unusable)


def _parse(text: str) -> tuple[int, tuple[int, int], AuditLine] | None:
    found = _LINE.findall(text)
    if len(found) != 1 or text.count("A2AUD") != 1:
        return None
    rank, call, chunk, *lists = found[0]
    sent, got, before, after = (tuple(item.split(",")) if item else () for item in lists)
    if {len(got), len(before) or len(sent), len(after) or len(sent)} != {len(sent)} or not all(
        (*sent, *got, *before, *after)
    ):
        return None
    return int(rank), (int(call), int(chunk)), AuditLine(sent, got, before, after)


def _audit(table: dict[tuple[int, int], dict[int, AuditLine]], total: int, unusable: int) -> Audit:
    widths = Counter(len(line.sent) for lines in table.values() for line in lines.values())
    # The world is what the lists say; a rank that never logged anything still has legs.
    world = max(widths.most_common(1)[0][0], *(rank + 1 for lines in table.values() for rank in lines))
    faults: list[Leg] = []
    rewritten = 0
    for (call, chunk), lines in sorted(table.items()):
        for source in range(world):
            for destination in range(world):
                sent = _at(lines.get(source), "sent", destination)
                got = _at(lines.get(destination), "got", source)
                changed = _changed(lines.get(source), destination)
                rewritten += changed
                if sent is None or got is None:
                    faults.append(Leg(MISSING, call, chunk, source, destination, sent, got))
                elif sent != got:
                    kind = PACKING if source == destination else REWRITTEN if changed else PLACEMENT
                    faults.append(Leg(kind, call, chunk, source, destination, sent, got))
    legs = len(table) * world * world
    return Audit(
        ranks=tuple(range(world)),
        calls=len({call for call, _ in table}),
        chunks=len({chunk for _, chunk in table}),
        legs=legs,
        equal=legs - len(faults),
        self_wrong=sum(leg.fault == PACKING for leg in faults),
        rewritten_blocks=rewritten,
        faults=tuple(faults),
        lines=total,
        unusable_lines=unusable,
    )


def _at(line: AuditLine | None, column: str, index: int) -> str | None:
    values: tuple[str, ...] = getattr(line, column) if line else ()
    return values[index] if index < len(values) else None


def _changed(line: AuditLine | None, destination: int) -> bool:
    if line is None or destination >= min(len(line.before), len(line.after)):
        return False
    return line.before[destination] != line.after[destination]


def selftest() -> list[tuple[str, bool]]:
    """Reconcile a faithful log and one with each fault; return ``(name, right)`` for each."""
    return [(name, _verdict(_sample(name)) == name) for name in ("faithful", *FAULTS)]


def _verdict(lines: list[str]) -> str:
    audit = reconcile_transport(lines)
    kinds = {leg.fault for leg in audit.faults}
    return "faithful" if audit.ok else kinds.pop() if len(kinds) == 1 else "mixed"


def _sample(fault: str) -> list[str]:
    """Two ranks, one call: rank r sends ``10·r + destination``."""
    sent = {0: ["100", "101"], 1: ["110", "111"]}
    got = {0: ["100", "110"], 1: ["101", "111"]}
    after = {rank: list(values) for rank, values in sent.items()}
    if fault == REWRITTEN:
        after[0][1] = got[1][0] = "999"
    elif fault == PLACEMENT:
        got[1][0] = "777"
    elif fault == PACKING:
        got[0][0] = "555"
    lines = [
        f"A2AUD rank={rank} call=0 chunk=0 sent={','.join(sent[rank])} got={','.join(got[rank])} "
        f"spre={','.join(sent[rank])} spost={','.join(after[rank])}"
        for rank in (0, 1)
    ]
    return lines[:1] if fault == MISSING else lines
