"""Random right schedules of masked communication, made event by event, to hold the masking bound against.

One communication stream and one compute stream run what was issued to them in order. The attention of a chunk starts
once the chunk's forward calls have arrived, its reverse calls start once it has attended; a layer starts when the one
before is done. Everything else is drawn: chunks and their sizes, calls per chunk, the order of issue, delays, other
compute, other collectives.

python tests/support/mask_schedules.py 10000
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from attribution_tables import attention, capture_of, collective, compute

from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.steps import decompose
from anchormatrix.records.waits import MaskBound


@dataclass
class Schedule:
    """The kernels of a schedule, and what was drawn for it."""

    layers: int
    chunks: int
    forward_calls: int
    reverse_calls: int
    rows: list[dict[str, object]] = field(default_factory=list)
    communication_us: int = 0
    compute_us: int = 0

    def found(self) -> MaskBound:
        """What the library says of it."""
        capture = capture_of(self.rows)
        options = MaskOptions(layers=self.layers, chunks=self.chunks, family="alltoall")
        return mask_bounds(capture, decompose(capture), 1, options)[0]


def draw_schedule(draw: random.Random) -> Schedule:
    """A right schedule; every size ragged, every queue delayed at random."""
    made = Schedule(draw.randint(1, 3), draw.randint(1, 8), draw.randint(1, 3), draw.choice((0, 1, 1, 2)))
    longest = draw.choice((1, 20, 200)), draw.choice((1, 20, 200, 1000))  # µs of a call, of an attention
    late = draw.choice((0, 0, 30))
    for _ in range(made.layers):
        _layer(made, draw, longest, late)
    return made


def _layer(made: Schedule, draw: random.Random, longest: tuple[int, int], late: int) -> None:
    made.compute_us = max(made.compute_us, made.communication_us)
    _compute(made, draw, late)
    arrived: dict[int, int] = {}
    attended: dict[int, int] = {}
    packed = made.compute_us
    for kind, chunk in _issued(made, draw):
        if kind == "attention":
            _compute(made, draw, late)  # unpacking, and whatever else may run beside the exchange
            start = max(made.compute_us, arrived[chunk]) + draw.randint(0, late)
            made.compute_us = attended[chunk] = start + draw.randint(1, longest[1])
            made.rows.append(attention(start, made.compute_us))
            continue
        if draw.random() < 0.1:
            _communicate(made, draw, made.communication_us, longest[0], late, "allReduce", "503")
        ready, calls = (packed, made.forward_calls) if kind == "forward" else (attended[chunk], made.reverse_calls)
        for _ in range(calls):
            _communicate(made, draw, ready, longest[0], late)
        if kind == "forward":
            arrived[chunk] = made.communication_us


def _issued(made: Schedule, draw: random.Random) -> Iterator[tuple[str, int]]:
    """An order of issue: attention in the chunks' order, each behind its forward calls and before its reverse ones."""
    order = list(range(made.chunks))
    forward = draw.sample(order, made.chunks) if draw.random() < 0.2 else order
    waiting = {"forward": list(forward), "attention": list(order), "reverse": list(order)}
    sent: set[int] = set()
    while any(waiting.values()):
        attention_next, reverse_next = waiting["attention"][:1], waiting["reverse"][:1]
        kinds = ["forward"] if waiting["forward"] else []
        kinds += ["attention"] if attention_next and attention_next[0] in sent else []
        kinds += ["reverse"] if reverse_next and reverse_next[0] not in waiting["attention"] else []
        kind = draw.choice(kinds)
        chunk = waiting[kind].pop(0)
        sent.add(chunk)
        yield kind, chunk


def _compute(made: Schedule, draw: random.Random, late: int) -> None:
    if draw.random() < 0.5:
        start = made.compute_us + draw.randint(0, late)
        made.compute_us = start + draw.randint(1, 50)
        made.rows.append(compute(start, made.compute_us))


def _communicate(
    made: Schedule, draw: random.Random, ready: int, longest: int, late: int, family: str = "alltoall", gid: str = "445"
) -> None:
    start = max(made.communication_us, ready) + draw.randint(0, late)
    made.communication_us = start + draw.randint(1, longest)
    made.rows.append(collective(start, made.communication_us, family, communicator=gid))


def violations(count: int, seed: int) -> Iterator[tuple[int, MaskBound]]:
    """Of so many random schedules those that a bound forbids, or whose inputs are said to contradict each other."""
    for number in range(count):
        found = draw_schedule(random.Random(f"{seed}/{number}")).found()
        if found.under_attention > found.bound + 1e-6 or (found.achievement or 0.0) > 1:
            yield number, found


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    broken = list(violations(wanted, seed=11))
    print(f"{len(broken)} violations in {wanted} schedules")
    for item in broken[:5]:
        print(item)
    sys.exit(bool(broken))
