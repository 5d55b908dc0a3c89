"""Which faults, from which state, at which moments: everything random about a draw, from the seed and its number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from campaigns.faults.draws.kinds import KINDS, STARTS, Fault, Kind
from campaigns.faults.stage import Moment

CORES = (1, 1, 4, 8)
_JOBS = {"new": 18, "smoked": 13, "half": 12, "one left": 10, "measured": 8, "judged": 3, "finished": 1}
_TWO, _NO_PROFILE, _DRY = 0.25, 0.25, 0.25
_LONGEST_S = 3.0


@dataclass(frozen=True)
class Strike:
    """One fault of a draw and when it strikes: at a moment, and so many seconds later."""

    kind: Kind
    fault: Fault
    moment: Moment
    later_s: float

    def __str__(self) -> str:
        """In words."""
        when = f" at {self.moment.text or 'the start'} {self.moment.times} + {self.later_s:.2f} s"
        return self.fault.words + (when if self.fault.strike else "")


@dataclass(frozen=True)
class Draw:
    """One draw: where it starts, what strikes, and how it is run; ``dry`` lists the jobs before the run that mends."""

    number: int
    start: str
    strikes: tuple[Strike, ...]
    cores: tuple[int, int]
    profile: bool
    dry: bool

    def __str__(self) -> str:
        """In one line."""
        how = f"cores {self.cores[0]} then {self.cores[1]}{'' if self.profile else ', no profile'}"
        return (
            f"{self.number}: from {self.start}: {'; '.join(map(str, self.strikes))}; {how}{', dry' if self.dry else ''}"
        )


def draw(seed: int, number: int, kinds: Sequence[Kind] = KINDS) -> Draw:
    """The draw of this number; it depends on the seed and the number alone."""
    rng = random.Random(f"{seed}/{number}")
    first = _weighted(rng, kinds)
    start = rng.choices(first.starts, [STARTS[name] for name in first.starts])[0]
    chosen = [first]
    others = [kind for kind in kinds if start in kind.starts and not kind.alone and kind is not first]
    if not first.alone and others and rng.random() < _TWO:
        chosen.append(_weighted(rng, others))
    return Draw(
        number,
        start,
        tuple(_strike(rng, kind, start) for kind in chosen),
        (rng.choice(CORES), rng.choice(CORES)),
        rng.random() >= _NO_PROFILE,
        rng.random() < _DRY,
    )


def _weighted(rng: random.Random, kinds: Sequence[Kind]) -> Kind:
    return rng.choices(kinds, [kind.weight for kind in kinds])[0]


def _strike(rng: random.Random, kind: Kind, start: str) -> Strike:
    fault = kind.choose(rng)
    if kind.serving or (start in ("new", "smoked", "half", "one left") and rng.random() < 0.5):
        moment = Moment("host/scratch/*/server.log", "Video sampling params", rng.randint(1, 11))
        return Strike(kind, fault, moment, rng.uniform(0.0, 0.2))
    done = rng.randint(0, _JOBS[start] - 1)
    moment = Moment("run-1.txt", "Finished jobid" if done else "", max(1, done))
    return Strike(kind, fault, moment, rng.uniform(0.0, _LONGEST_S))
