"""The server's log is the measurement: from its text to timed requests, ranks and group sizes.

- A request starts at the server's own sampling-parameter line, not at an HTTP access line: a response may be lost while
  the server's timing is complete.
- Only the denoise stage counts (``<Pipeline>.diffuse``, also under nested names). Some pipelines log it once per step:
  stages are summed within a rank and request first, then the minimum over ranks is taken.
- Step time = stage ÷ iterations executed. The executed count is the total of the progress bar; without a bar, the
  requested count. A bar's smoothed ``s/it`` is never used; only its cumulative ``MM:SS`` (±1 s) is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from anchormatrix.measure.serverlog.grammar import RawLog, Segment, Worker, read_log

_TAG_PART = re.compile(r"_?([A-Z]+)(\d{1,6})(?!\d)", re.ASCII)
_TAG_GROUPS = {"TP": "tp_size", "PP": "pp_size", "CFG": "cfg_size", "SP": "sp_size"}
_TOTAL_OFF_BY = 2  # a bar of the denoise loop shows the requested count, or one or two fewer


@dataclass(frozen=True)
class RankTiming:
    """What one rank logged of one request. ``stage_s`` are its single diffuse lines, in order."""

    rank: int
    tag: str
    diffuse_s: float
    stage_s: tuple[float, ...]


@dataclass(frozen=True)
class Request:
    """One request as the server timed it; times in seconds.

    ``diffuse_s`` is ``None`` when no rank's timing is whole. ``denominator`` says where ``iterations`` comes from:
    ``bar`` or ``requested``. ``bars`` are the (iteration, elapsed seconds ±1) of the rank that drew a progress bar.
    ``response`` is ``sent``, ``lost``, ``error`` or ``unknown``; ``profiled`` means that the profiler was on.
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

    @property
    def step_s(self) -> float | None:
        """Step time in seconds: the fastest rank's diffuse time ÷ iterations executed."""
        return None if self.diffuse_s is None else self.diffuse_s / self.iterations

    @property
    def rank_spread_s(self) -> float | None:
        """Slowest minus fastest rank; ranks of a healthy group agree within a millisecond or so."""
        times = [timing.diffuse_s for timing in self.ranks]
        return max(times) - min(times) if times else None


@dataclass(frozen=True)
class ServeLog:
    """A parsed log. ``ranks`` are the workers' tags in rank order; ``groups`` the distinct sizes each group was given.
    ``lines`` counts physical lines, ``unusable_lines`` spoiled or cut ones. ``checks`` are what the ranks found of
    their own results: what was compared, relative distance, limit; ``features`` their lines on launch features.
    """

    requests: tuple[Request, ...]
    ranks: tuple[str, ...]
    groups: Mapping[str, tuple[int, ...]]
    applied: tuple[str, ...]
    lines: int
    unusable_lines: int
    stage_lines: int
    checks: tuple[tuple[str, float, float], ...] = ()
    features: tuple[tuple[Worker, str], ...] = ()

    @property
    def lost_responses(self) -> int:
        """Requests whose response did not reach the client although the server's timing is whole."""
        return sum(request.response == "lost" and request.diffuse_s is not None for request in self.requests)

    @property
    def denominators(self) -> dict[str, int]:
        """How many timed requests took their iterations from a bar, and how many from the request."""
        return dict(Counter(request.denominator for request in self.requests if request.diffuse_s is not None))


def closure_pct(requests: Iterable[Request]) -> float | None:
    """Largest |forward − (diffuse + decode + encode)| ÷ forward of the requests that log all four, in percent."""
    shares = [
        abs(r.forward_s - r.diffuse_s - r.decode_s - r.encode_s) / r.forward_s * 100
        for r in requests
        if r.forward_s and r.diffuse_s is not None and r.decode_s is not None and r.encode_s is not None
    ]
    return max(shares, default=None)


def parse_serve_log(text: str) -> ServeLog:
    """Parse a server log (stdout and stderr in one text). Never raises: what cannot be read is counted."""
    raw = read_log(text)
    alias = _aliases(raw.workers)
    workers = sorted({alias.get(worker, worker) for worker in raw.workers}, key=_rank_order)
    ranks = {worker: rank for rank, worker in enumerate(workers)} or {("", ""): 0}
    totals = _usual_totals(raw.segments)
    drafts = [_Draft(segment, ranks, alias, totals) for segment in raw.segments]
    usual = _usual_count(drafts)
    answered = any(segment.status for segment in raw.segments)
    requests = tuple(draft.request(i, usual(draft.iterations), answered) for i, draft in enumerate(drafts))
    strays = sum(draft.strays for draft in drafts)
    return ServeLog(
        requests=requests,
        ranks=tuple(tag for tag, _ in workers) or (("",) if any(request.ranks for request in requests) else ()),
        groups=_groups(raw, workers),
        applied=tuple(raw.applied),
        lines=raw.lines,
        unusable_lines=raw.unusable + strays,
        stage_lines=raw.stage_lines - strays,
        checks=tuple(raw.checks),
        features=tuple(raw.features),
    )


class _Draft:
    """A segment with its workers attributed and its iterations counted."""

    def __init__(
        self, segment: Segment, ranks: Mapping[Worker, int], alias: Mapping[Worker, Worker], totals: Mapping[int, int]
    ) -> None:
        self.segment, self.ranks = segment, ranks
        self.stages: dict[Worker, dict[str, list[float]]] = {}
        self.strays = 0
        for worker, stages in segment.stages.items():
            owner = alias.get(worker, worker)
            if owner in ranks:
                for name, times in stages.items():
                    self.stages.setdefault(owner, {}).setdefault(name, []).extend(times)
            else:
                self.strays += sum(map(len, stages.values()))
        own = _bar_total(segment)
        self.iterations = own or totals.get(segment.steps) or segment.steps
        self.denominator = "bar" if own or segment.steps in totals else "requested"
        bar = max(segment.bars.values(), key=len, default=[])
        self.bars = tuple(sorted({(done, elapsed) for done, total, elapsed in bar if total == own and done > 0}))
        names = self._outermost(_is_diffuse)
        self.diffuse = {
            worker: tuple(second for name in names for second in stages.get(name, ()))
            for worker, stages in self.stages.items()
            if any(name in stages for name in names)
        }

    def request(self, index: int, expected: int, answered: bool) -> Request:
        """Close the draft: a rank counts when it logged as many diffuse lines as is usual for so many iterations."""
        whole = sorted(
            (
                RankTiming(self.ranks[worker], worker[0], sum(times), times)
                for worker, times in self.diffuse.items()
                if len(times) == expected
            ),
            key=lambda timing: timing.rank,
        )
        return Request(
            index=index,
            steps=self.segment.steps,
            iterations=self.iterations,
            denominator=self.denominator,
            diffuse_s=min((timing.diffuse_s for timing in whole), default=None),
            encode_s=self._stage_s(_last_part_has("encode")),
            decode_s=self._stage_s(_last_part_has("decode")),
            forward_s=self._stage_s(_is_forward),
            ranks=tuple(whole),
            bars=self.bars,
            response=self._response(bool(whole), answered),
            notes=tuple(self._notes({timing.rank for timing in whole})),
            profiled=self.segment.profiled,
        )

    def _outermost(self, kind: Callable[[str], bool]) -> tuple[str, ...]:
        """The stages of a kind with the fewest parts: an outer stage already contains those nested in it."""
        found = sorted({name for stages in self.stages.values() for name in stages if kind(name)})
        depth = min((name.count(".") for name in found), default=0)
        return tuple(name for name in found if name.count(".") == depth)

    def _stage_s(self, kind: Callable[[str], bool]) -> float | None:
        names = self._outermost(kind)
        sums = [sum(sum(stages.get(name, ())) for name in names) for stages in self.stages.values()]
        return min((value for value in sums if value > 0), default=None)

    def _response(self, timed: bool, answered: bool) -> str:
        status = self.segment.status
        if status is not None and status >= 400:
            return "error"
        if self.segment.lost:
            return "lost"
        if status is not None:
            return "sent"
        return "lost" if timed and answered else "unknown"

    def _notes(self, whole: set[int]) -> Iterable[str]:
        missing = sorted(set(self.ranks.values()) - whole)
        if whole and missing:
            listed = ", ".join(map(str, missing))
            yield f"the timing of rank {listed} is not whole: the other ranks are used"
        elif self.diffuse and not whole:
            yield "no rank's timing is whole"
        if self.segment.unusable + self.strays:
            yield f"{self.segment.unusable + self.strays} unusable lines"


def _is_diffuse(name: str) -> bool:
    return name.endswith(".diffuse")


def _is_forward(name: str) -> bool:
    return name.endswith(".forward") and name.count(".") == 1


def _last_part_has(word: str) -> Callable[[str], bool]:
    return lambda name: word in name.rsplit(".", 1)[-1]


def _bar_total(segment: Segment) -> int | None:
    """The total of the denoise loop's bar among all bars of a request; ``None`` when none can be told to be it."""
    counts = Counter(total for bar in segment.bars.values() for _, total, _ in bar if total > 0)
    if segment.steps in counts:
        return segment.steps
    near = [total for total in counts if abs(total - segment.steps) <= _TOTAL_OFF_BY]
    if near:
        return max(near, key=lambda total: (counts[total], total))
    return next(iter(counts)) if len(counts) == 1 else None


def _usual_totals(segments: Iterable[Segment]) -> dict[int, int]:
    """Requested steps to the bar total usually seen for them: a request whose bar was lost uses its sisters'."""
    seen: dict[int, Counter[int]] = {}
    for segment in segments:
        if total := _bar_total(segment):
            seen.setdefault(segment.steps, Counter())[total] += 1
    return {steps: max(counts, key=lambda total: (counts[total], total)) for steps, counts in seen.items()}


def _usual_count(drafts: Iterable[_Draft]) -> Callable[[int], int]:
    """How many diffuse lines a rank logs of a request with so many iterations, as most requests of this log have it.

    Either always the same number (usually one), or one per iteration; where no bar tells the executed count, an engine
    may have executed one fewer than requested. Fewer or more lines mean that some were lost, or that a
    sampling-parameter line was and two requests look like one.
    """
    seen = Counter((draft.iterations, len(times)) for draft in drafts for times in draft.diffuse.values())
    fixed = Counter[int]()
    for (_, lines), times in seen.items():
        fixed[lines] += times
    most = max(fixed, key=lambda lines: (fixed[lines], -lines), default=1)
    best, offset = max(
        (sum(times for (iterations, lines), times in seen.items() if lines == iterations - fewer), -fewer)
        for fewer in (0, 1)
    )
    if most > 1 and best >= fixed[most]:
        return lambda iterations: iterations + offset
    return lambda iterations: most


def _aliases(workers: Iterable[Worker]) -> dict[Worker, Worker]:
    """A worker that gets its full tag only after its groups are built is the same rank under both tags."""
    by_pid: dict[str, list[Worker]] = {}
    for worker in workers:
        by_pid.setdefault(worker[1], []).append(worker)
    return {
        worker: next(other for other in found if other != worker)
        for found in by_pid.values()
        for worker in found
        if len(found) == 2 and worker[0] == "DiffusionWorker"
    }


def _rank_order(worker: Worker) -> tuple[list[int], int]:
    return [int(number) for _, number in _TAG_PART.findall(worker[0])], int(worker[1])


def _groups(raw: RawLog, workers: Sequence[Worker]) -> dict[str, tuple[int, ...]]:
    """Group sizes as workers printed them; those not printed are counted from the workers' tags (``SP1_TP0``)."""
    members: dict[str, set[int]] = {}
    for tag, _ in workers:
        for name, number in _TAG_PART.findall(tag.removeprefix("DiffusionWorker")):
            if name in _TAG_GROUPS:
                members.setdefault(_TAG_GROUPS[name], set()).add(int(number))
    counted = {name: (len(numbers),) for name, numbers in members.items()}
    return {**counted, **{name: tuple(sorted(sizes)) for name, sizes in sorted(raw.groups.items())}}
