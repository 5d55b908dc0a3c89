"""The server's log is the measurement: from its text to timed requests, ranks and group sizes.

- A request starts at the server's own sampling-parameter line, not at an HTTP access line: a response may be lost while
  the server's timing is complete.
- Only the denoise stage counts (``<Pipeline>.diffuse``, also under nested names). Some pipelines log it once per step:
  stages are summed within a rank and request first, then the minimum over ranks is taken.
- Step time = stage ÷ iterations executed. The executed count is the total of the progress bar; without a bar, the
  requested count. A bar's smoothed ``s/it`` is never used; only its cumulative ``MM:SS`` (±1 s) is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from anchormatrix.engines.client import Response
from anchormatrix.engines.logs.bars import Bar, agrees, clock, denoise_bars
from anchormatrix.engines.logs.lines import Worker
from anchormatrix.engines.logs.nearest import nearest_lines
from anchormatrix.engines.timing import RankTiming, Request, ServeLog
from anchormatrix.engines.vllm_omni.answers import give_steps, with_answers
from anchormatrix.engines.vllm_omni.features import denials, offload_seen, sparse_seen
from anchormatrix.engines.vllm_omni.grammar import read_log
from anchormatrix.engines.vllm_omni.loop import CLOCK_PCT, has_own_stage, remainder
from anchormatrix.engines.vllm_omni.ranks import Ranks, group_sizes
from anchormatrix.engines.vllm_omni.segments import RawLog, Segment
from anchormatrix.engines.vllm_omni.stages import is_decode, is_diffuse, is_encode, is_forward
from anchormatrix.engines.vllm_omni.switches import judged
from anchormatrix.engines.vllm_omni.witnesses import Witnesses
from anchormatrix.records.requests import Basis


def parse_serve_log(text: str, responses: Sequence[Response] = (), *, switches: Sequence[str] = ()) -> ServeLog:
    """Parse a server log (stdout and stderr in one text) beside the answers of its requests.

    ``switches`` are the arguments whose effect the log shall prove. Never raises: what cannot be read is counted.
    """
    raw = read_log(text)
    give_steps(raw.segments, responses)
    ranks = Ranks(raw)
    witnesses = Witnesses(raw)
    own = has_own_stage(raw)
    drafts = [_Draft(segment, ranks, own=own) for segment in raw.segments]
    totals = _usual_totals(drafts)
    for draft in drafts:
        draft.count(totals)
    usual = _usual_count(drafts)
    answered = any(segment.status for segment in raw.segments)
    requests = tuple(draft.request(i, usual(draft.iterations), answered, witnesses) for i, draft in enumerate(drafts))
    stepwise = any(len(timing.stage_s) > 1 for request in requests for timing in request.ranks)
    against, unproven = judged(switches, raw.features, stepwise=stepwise)
    spoiled = raw.spoiled + ranks.strays
    tags = tuple(tag for tag, _ in ranks.workers)
    return ServeLog(
        requests=with_answers(requests, responses),
        ranks=tags or ("",) * max((len(draft.stages) for draft in drafts), default=0),
        groups=group_sizes(raw, ranks.workers),
        applied=tuple(raw.applied),
        lines=raw.lines,
        unusable_lines=spoiled.total(),
        stage_lines=ranks.timed,
        checks=tuple(raw.checks),
        offload=offload_seen(raw.features),
        sparse=sparse_seen(raw.features),
        denied={**denials(raw.features), **against},
        unproven=unproven,
        nearest=() if ranks.timed else nearest_lines(text),
        bars=sum(len(runs) for segment in (raw.early, *raw.segments) for runs in segment.bars.values()),
        spoiled=dict(spoiled),
        findings=tuple(_findings(raw, ranks, drafts)),
        remarks=tuple(_remarks(raw)),
    )


def _findings(raw: RawLog, ranks: Ranks, drafts: Iterable[_Draft]) -> Iterable[str]:
    """What a person should know of how a log was read, each kind with its count and its name."""
    for text, count in ranks.foreign.most_common(3):
        yield f"{count} stage lines begin with a prefix not understood: {ranks.said[text]}"
    if more := sum(count for _, count in ranks.foreign.most_common()[3:]):
        yield f"{more} stage lines begin with {len(ranks.foreign) - 3} other prefixes not understood"
    if raw.copies > 1:
        yield f"every line stands {raw.copies} times in the log: taken once"
    if copies := sum(draft.lines.copies for draft in drafts):
        yield f"{copies} stage lines are copies to the microsecond of another of their rank: taken once"
    if not ranks.named and ranks.unnamed > 1:
        yield f"stage lines name no rank; {ranks.unnamed} ranks wrote them, by how many lines a request has"
    names = sorted({line.name for segment in raw.segments for line in segment.stages})
    if names and not has_own_stage(raw):
        yield f"no diffuse stage among those logged: {', '.join(names[:8])}"
        if any(draft.diffuse for draft in drafts) and not any(map(is_encode, names)):
            yield "no stage names the text encoder: its time is counted as the denoise loop's"


def _remarks(raw: RawLog) -> Iterable[str]:
    """What every server's log may hold: the warm-up at its start, and methods that a pipeline does not have."""
    if early := len(raw.early.stages):
        yield f"{early} stage lines stand before any request begins: not counted as a request's"
    if raw.missing:
        yield f"methods that the pipeline's profiler did not find: {', '.join(list(raw.missing)[:8])}"


class _Draft:
    """A segment with its lines attributed to ranks and its iterations counted."""

    def __init__(self, segment: Segment, ranks: Ranks, *, own: bool) -> None:
        self.segment, self.ranks = segment, ranks
        self.basis = Basis.DIFFUSE if own else Basis.REMAINDER
        self.lines = ranks.lines(segment)
        self.stages = self.lines.stages
        names = self._outermost(is_diffuse)
        self.diffuse = {
            worker: tuple(second for name in names for second in stages.get(name, ()))
            for worker, stages in self.stages.items()
            if any(name in stages for name in names)
        }
        if not own:
            left = {worker: remainder(stages) for worker, stages in self.stages.items()}
            self.diffuse = {worker: (seconds,) for worker, seconds in left.items() if seconds is not None}
        self.bar = self._denoise_bars()
        self.total = self.bar[0].total if self.bar else None
        self.iterations, self.denominator = segment.steps, "requested"

    def count(self, totals: Mapping[int, int]) -> None:
        """Take the iterations from the bar, or from the bars of requests for as many steps."""
        total = self.total or totals.get(self.segment.steps)
        if total:
            self.iterations, self.denominator = total, "bar"

    def request(self, index: int, expected: int, answered: bool, witnesses: Witnesses) -> Request:
        """Close the draft: a rank counts when it logged as many diffuse lines as is usual for so many iterations."""
        whole = sorted(
            (
                RankTiming(self.ranks.order[worker], worker[0], sum(times), times)
                for worker, times in self.diffuse.items()
                if len(times) == expected
            ),
            key=lambda timing: timing.rank,
        )
        notes = tuple(self._notes({timing.rank for timing in whole}))
        refused = self._refused(whole, witnesses)
        if refused:
            whole = []
        elif not self.diffuse and self.basis is Basis.REMAINDER:
            whole, refused = self._by_the_clock()
        return Request(
            index=index,
            steps=self.segment.steps,
            iterations=self.iterations,
            denominator=self.denominator,
            diffuse_s=min((timing.diffuse_s for timing in whole), default=None),
            encode_s=self._stage_s(is_encode),
            decode_s=self._stage_s(is_decode),
            forward_s=self._stage_s(is_forward),
            ranks=tuple(whole),
            bars=self._states(),
            response=self._response(bool(whole), answered),
            notes=(*notes, refused) if refused else notes,
            profiled=self.segment.profiled,
            refused=refused,
            basis=self.basis,
        )

    def _by_the_clock(self) -> tuple[list[RankTiming], str]:
        """The loop's time by its bar, whose clock counts whole seconds; or why that is no time."""
        whole = [bar for bar in self.bar if bar.whole]
        if len(whole) != 1 or not whole[0].elapsed_s:
            return [], ""
        elapsed_s, worker = whole[0].elapsed_s, self.ranks.owner(whole[0].worker)
        if 100 / elapsed_s > CLOCK_PCT:
            why = f"only the progress bar times the loop, {clock(elapsed_s)} in whole seconds: no time for a step"
            return [], why if self.stages else ""
        self.basis = Basis.BAR
        return [RankTiming(self.ranks.order.get(worker, 0), worker[0], float(elapsed_s), (float(elapsed_s),))], ""

    def _denoise_bars(self) -> tuple[Bar, ...]:
        last: dict[Worker, int] = {}
        for place, line in enumerate(self.segment.stages):
            if is_diffuse(line.name) and not (last and self.ranks.unnamed > 1):  # of unnamed ranks the first ends it
                last[self.ranks.owner(line.worker)] = last[("", "")] = place
        shortest = min(map(sum, self.diffuse.values()), default=None)
        begun_in_time = [
            bar
            for runs in self.segment.bars.values()
            for bar in runs
            if not last or bar.place <= last.get(self.ranks.owner(bar.worker), last[("", "")])
        ]
        return denoise_bars(map(self.ranks.labelled, begun_in_time), self.segment.steps, shortest)

    def _states(self) -> tuple[tuple[int, int], ...]:
        """The states of the bar that one rank drew, without its start; a state drawn again counts as it came first."""
        drawn: dict[Worker, dict[int, int]] = {}
        for bar in self.bar:
            for done, elapsed_s in bar.states:
                drawn.setdefault(bar.worker, {}).setdefault(done, elapsed_s)
        most = max(map(len, drawn.values()), default=0)
        states = next((found for found in drawn.values() if len(found) == most), {})
        return tuple(sorted(state for state in states.items() if state[0] > 0))

    def _refused(self, whole: Iterable[RankTiming], witnesses: Witnesses) -> str:
        """Why the times that are there are not usable; empty when they are."""
        if self.lines.refused:
            return self.lines.refused
        first = min(whole, key=lambda timing: timing.diffuse_s, default=None)
        if first is None:
            return ""
        if self._not_parts(first.stage_s):
            whose = f"are of {first.tag}" if first.tag else "name no rank"
            lines = f"{len(first.stage_s)} diffuse lines {whose}"
            return f"{lines}: the progress bar bears one of them out, not their sum"
        times = next(self.stages[worker] for worker in self.diffuse if self.ranks.order[worker] == first.rank)
        why = witnesses.doubt(self.segment, times, first.diffuse_s, self.bar)
        done, elapsed_s = max(self._states(), default=(0, 0))
        if not why or not elapsed_s:
            return why
        by_bar = f"{elapsed_s / done:.3g} s per step by the bar ({clock(elapsed_s)} for {done}, to {1 / done:.2g} s)"
        return f"{why}; {by_bar}"

    def _not_parts(self, stage_s: Sequence[float]) -> bool:
        """Whether the one bar of the whole loop says that diffuse lines are no parts of one rank's."""
        if len(stage_s) < 2 or len(self.bar) != 1 or 2 * self.bar[0].total <= self.segment.steps:
            return False
        return agrees(self.bar, max(stage_s)) and not agrees(self.bar, sum(stage_s))

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
        missing = sorted(set(self.ranks.order.values()) - whole)
        if whole and missing:
            listed = ", ".join(map(str, missing))
            yield f"the timing of rank {listed} is not whole: the other ranks are used"
        elif self.diffuse and not whole:
            yield "no rank's timing is whole"
        if self.segment.unusable + self.lines.strays:
            yield f"{self.segment.unusable + self.lines.strays} unusable lines"


def _usual_totals(drafts: Iterable[_Draft]) -> dict[int, int]:
    """Requested steps to the bar total usually seen for them: a request whose bar was lost uses its sisters'."""
    seen: dict[int, Counter[int]] = {}
    for draft in drafts:
        if draft.total:
            seen.setdefault(draft.segment.steps, Counter())[draft.total] += 1
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
