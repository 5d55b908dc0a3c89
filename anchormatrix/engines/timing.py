"""Timed requests: what a server told of each, by which ranks, and why a time is not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anchormatrix.records.requests import Basis, Witness
from anchormatrix.records.session import OffloadSeen, SparseSeen

_UNTOLD = "nothing in the log can be told to be of it"


@dataclass(frozen=True)
class RankTiming:
    """What one rank told of one request. ``stage_s`` are its single diffuse lines, or its steps, in order."""

    rank: int
    tag: str
    diffuse_s: float
    stage_s: tuple[float, ...]


@dataclass(frozen=True)
class Request:
    """One request as the server timed it; times in seconds.

    ``steps`` and ``iterations`` are 0 where nothing tells them. ``diffuse_s`` is ``None`` when no rank's timing is
    whole; ``basis`` says what it is and ``witness`` who told it. ``denominator`` says where ``iterations`` comes from:
    ``bar`` or ``requested``. ``bars`` are the (iteration, elapsed seconds ±1) of the rank that drew a progress bar.
    ``response`` is ``sent``, ``lost``, ``error`` or ``unknown``; ``profiled`` means that the profiler was on.
    ``refused`` says why the stage times are there and not used: something contradicts them, or their ranks cannot be
    told apart. ``steps_s`` is the time of each step, where an engine tells it.
    """

    index: int
    steps: int
    iterations: int
    denominator: str
    diffuse_s: float | None
    encode_s: float | None
    decode_s: float | None
    forward_s: float | None
    ranks: tuple[RankTiming, ...]
    bars: tuple[tuple[int, int], ...]
    response: str
    notes: tuple[str, ...] = ()
    profiled: bool = False
    refused: str = ""
    steps_s: tuple[float, ...] = ()
    basis: Basis = Basis.DIFFUSE
    witness: Witness = Witness.LOG

    @classmethod
    def unknown(cls, steps: int, response: str) -> Request:
        """A request that was sent and of which nothing is told."""
        return cls(0, steps, steps, "requested", None, None, None, None, (), (), response, (_UNTOLD,))

    @property
    def bar_step_s(self) -> tuple[float, float] | None:
        """Step time in seconds by the bar's clock, and how much longer it may be: the clock counts whole seconds."""
        done, elapsed_s = max(self.bars, default=(0, 0))
        return (elapsed_s / done, 1 / done) if done else None

    @property
    def step_s(self) -> float | None:
        """Step time in seconds: the fastest rank's diffuse time ÷ iterations executed."""
        return None if self.diffuse_s is None or not self.iterations else self.diffuse_s / self.iterations

    @property
    def rank_spread_s(self) -> float | None:
        """Slowest minus fastest rank; ranks of a healthy group agree within a millisecond or so."""
        times = [timing.diffuse_s for timing in self.ranks]
        return max(times) - min(times) if times else None


@dataclass(frozen=True)
class ServeLog:
    """A parsed log. ``ranks`` are the workers' tags in rank order, empty where lines name none; ``groups`` the distinct
    sizes each group was given. ``lines`` counts physical lines, ``spoiled`` unusable ones by reason, ``bars`` the runs
    of progress bars. ``checks`` are what the ranks found of their own results: what was compared, relative distance,
    limit; ``denied`` what a worker said against a group or a switch, by its name, ``unproven`` why nothing proves one;
    ``offload`` and ``sparse`` what they said of launch features; ``findings`` what a reader must know of how the
    log was read, ``remarks`` what may matter where a time is missing, ``nearest`` the lines that look most like a time
    where none was read.
    """

    requests: tuple[Request, ...]
    ranks: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    applied: tuple[str, ...]
    lines: int
    unusable_lines: int
    stage_lines: int
    checks: tuple[tuple[str, float, float], ...] = ()
    offload: OffloadSeen | None = None
    sparse: SparseSeen | None = None
    denied: Mapping[str, str] = field(default_factory=dict)
    unproven: Mapping[str, str] = field(default_factory=dict)
    nearest: tuple[str, ...] = ()
    bars: int = 0
    spoiled: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def untimed(self) -> str:
        """Why no request has a time, by what was seen; empty when one has."""
        if any(request.diffuse_s is not None for request in self.requests):
            return ""
        refused = [request.refused for request in self.requests if request.refused]
        if refused:
            return f"the stage times of {len(refused)} of {len(self.requests)} requests are not usable: {refused[-1]}"
        seen = f"{len(self.requests)} requests, {self.stage_lines} stage lines and {self.bars} progress bars were seen"
        what = "no stage times" if not self.stage_lines else "no whole diffuse stage of a request"
        spoiled = ", ".join(f"{count} unusable: {why}" for why, count in self.spoiled.items())
        near = f"nearest lines: {' | '.join(self.nearest)}" if self.nearest else ""
        return "the server logs " + "; ".join(filter(None, [what, seen, spoiled, *self.findings, *self.remarks, near]))

    @property
    def lost_responses(self) -> int:
        """Requests whose response did not reach the client although the server's timing is whole."""
        return sum(request.response == "lost" and request.diffuse_s is not None for request in self.requests)

    @property
    def denominators(self) -> dict[str, int]:
        """How many timed requests took their iterations from a bar, and how many from the request."""
        return dict(Counter(request.denominator for request in self.requests if request.diffuse_s is not None))


def closure_pct(requests: Iterable[Request]) -> float | None:
    """Largest |forward − (diffuse + decode + encode)| ÷ forward of the requests that log all four, in percent. Under a
    profiler the whole holds its start and its files, too."""
    shares = [
        abs(r.forward_s - r.diffuse_s - r.decode_s - r.encode_s) / r.forward_s * 100
        for r in requests
        if not r.profiled
        and r.forward_s
        and r.diffuse_s is not None
        and r.decode_s is not None
        and r.encode_s is not None
    ]
    return max(shares, default=None)
