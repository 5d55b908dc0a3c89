"""Ranks: which rank a stage line belongs to, in which order they count, and what is done when none is named.

Lines that name no rank are never summed over ranks. How many ranks wrote them is told by the stages that each logs once
a request (``forward``, decode): a diffuse line is then one rank's own. Where nothing tells, the request is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd

from anchormatrix.engines.logs.bars import Bar
from anchormatrix.engines.logs.lines import Worker
from anchormatrix.engines.vllm_omni.segments import RawLog, Segment, StageLine
from anchormatrix.engines.vllm_omni.stages import is_diffuse, is_forward

_TAG_PART = re.compile(r"_?([A-Z]+|rank[ =]?)(\d{1,6})(?!\d)", re.ASCII)
_TAG_GROUPS = {"TP": "tp_size", "PP": "pp_size", "CFG": "cfg_size", "SP": "sp_size", "DP": "dp_size"}
# Global ranks count tensor ranks fastest and replicas slowest (0.30.0, diffusion/distributed/parallel_state.py:826),
# in another order than the tag names the groups (worker/diffusion_worker.py:158-179).
_SLOWEST_FIRST = ("DP", "CFG", "PP", "SP", "TP")
_NUMBER = re.compile(r"\d+")
_ALIKE_PCT = 5.0  # ranks of one group agree within a millisecond or so; further apart they are no ranks of one request

Stages = dict[Worker, dict[str, list[float]]]


@dataclass
class Lines:
    """The stage lines of one request by rank; ``strays`` could not be attributed, ``copies`` were logged again,
    ``refused`` says why the rest cannot be told apart."""

    stages: Stages = field(default_factory=dict)
    strays: int = 0
    copies: int = 0
    refused: str = ""


class Ranks:
    """Who wrote a log's stage lines. ``order`` numbers the ranks, ``strays`` counts by reason what names none."""

    def __init__(self, raw: RawLog) -> None:
        lines = [line for segment in (raw.early, *raw.segments) for line in segment.stages]
        self.foreign = Counter(_plain(line.foreign) for line in lines if line.foreign)
        self.said = {_plain(line.foreign): line.foreign for line in reversed(lines) if line.foreign}
        self._usual = {text for text, count in self.foreign.items() if 2 * count >= len(lines)}
        self.named = any(self._names(line) for line in lines)
        writers = {line.worker: None for line in lines if self._names(line)}
        seen = {**raw.workers, **writers} if self.named or not lines else {}
        self._alias = _aliases(seen)
        self.workers = _in_order({self.owner(worker) for worker in seen}, raw.numbers)
        self.unnamed = 1 if self.named else _unnamed(raw.segments)
        spare = [("", str(number)) for number in range(max(1, self.unnamed))]
        self.order = {worker: rank for rank, worker in enumerate(self.workers or spare)}
        self.strays = Counter(self._why(line) for line in lines if self.named and not self._names(line))
        self.timed = len(lines) - self.strays.total()

    def owner(self, worker: Worker) -> Worker:
        """The rank under the tag that it has in the end."""
        return self._alias.get(worker, worker)

    def labelled(self, bar: Bar) -> Bar:
        """A bar without what its label has of the prefixes of stage lines that nobody understands."""
        words = bar.label.split()
        for count in range(len(words), 0, -1):
            if _plain(" ".join(words[:count])) in self.foreign:
                return replace(bar, label=" ".join(words[count:]))
        return bar

    def lines(self, segment: Segment) -> Lines:
        """The stage lines of one request, each with the rank that wrote it."""
        found = Lines()
        if not self.named:
            _share(segment, self.unnamed, found)
            return found
        of: dict[Worker, list[StageLine]] = {}
        for line in segment.stages:
            if self._names(line):
                of.setdefault(self.owner(line.worker), []).append(line)
            else:
                found.strays += 1
        for worker, lines in of.items():
            once = _once(lines)
            found.copies += len(lines) - len(once)
            for line in once:
                found.stages.setdefault(worker, {}).setdefault(line.name, []).append(line.seconds)
        return found

    def _names(self, line: StageLine) -> bool:
        """A text between a writer's name and the stage may be another writer's, unless most lines have it."""
        return bool(line.worker[0]) and (not line.foreign or _plain(line.foreign) in self._usual)

    @staticmethod
    def _why(line: StageLine) -> str:
        return "a prefix not understood" if line.foreign else "no rank named, where others are"


def group_sizes(raw: RawLog, workers: Sequence[Worker]) -> dict[str, tuple[int, ...]]:
    """Group sizes as workers printed them; those not printed are counted from the workers' tags (``SP1_TP0``)."""
    members: dict[str, set[int]] = {}
    for tag, _ in workers:
        for name, number in _TAG_PART.findall(tag.removeprefix("DiffusionWorker")):
            if name in _TAG_GROUPS:
                members.setdefault(_TAG_GROUPS[name], set()).add(int(number))
    counted = {name: (len(numbers),) for name, numbers in members.items()}
    return {**counted, **{name: tuple(sorted(sizes)) for name, sizes in sorted(raw.groups.items())}}


def _plain(text: str) -> str:
    return _NUMBER.sub("N", text)


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


def _in_order(workers: Iterable[Worker], numbers: Mapping[str, int]) -> list[Worker]:
    """Workers by their global rank: as they said it themselves, else as their tags count."""
    found = list(workers)
    told = [numbers[process] for _, process in found if process in numbers]
    if len(set(told)) == len(found):
        return sorted(found, key=lambda worker: numbers[worker[1]])
    return sorted(found, key=_rank_order)


def _rank_order(worker: Worker) -> tuple[list[int], list[int], int, str]:
    process, parts = _NUMBER.match(worker[1]), _TAG_PART.findall(worker[0])
    groups = {name: int(number) for name, number in parts}
    known = [groups.get(name, 0) for name in _SLOWEST_FIRST]
    others = [int(number) for name, number in parts if name not in _SLOWEST_FIRST]
    return known, others, int(process[0]) if process else 0, worker[1]


def _once(lines: list[StageLine]) -> list[StageLine]:
    """A rank's lines of a request without those that were collected again: equal to the microsecond, each as often."""
    counts = Counter(lines)
    copies = reduce(gcd, counts.values())
    if copies < 2:
        return lines
    in_turn = all(lines[i::copies] == lines[::copies] for i in range(copies))
    whole = any(is_forward(line.name) for line in lines)
    if len({line.name for line in lines}) < 2 or not (in_turn or whole):
        return lines
    left = {line: count // copies for line, count in counts.items()}
    once = []
    for line in lines:
        if left[line]:
            left[line] -= 1
            once.append(line)
    return once


def _counts(segment: Segment) -> tuple[Counter[str], Counter[str]]:
    diffuse, others = Counter[str](), Counter[str]()
    for line in segment.stages:
        (diffuse if is_diffuse(line.name) else others)[line.name] += 1
    return diffuse, others


def _writers(others: Mapping[str, int]) -> int | None:
    """How many ranks logged a request, by the stages each logs; a text may be encoded twice, the whole only once."""
    whole = [count for name, count in others.items() if is_forward(name)]
    return whole[0] if whole else min(others.values(), default=None)


def _unnamed(segments: Sequence[Segment]) -> int:
    """How many ranks wrote a log that names none; 0 when nothing tells."""
    counted = [(segment.steps, *_counts(segment)) for segment in segments]
    timed = [(steps, diffuse, others) for steps, diffuse, others in counted if diffuse]
    told = Counter(writers for _, _, others in timed if (writers := _writers(others)))
    if told:
        return max(told, key=lambda writers: (told[writers], -writers))
    each = {(steps, max(diffuse.values())) for steps, diffuse, _ in timed}
    if all(lines == 1 for _, lines in each):
        return 1
    tiers, numbers = {steps for steps, _ in each}, {lines for _, lines in each}
    if len(tiers) > 1 and all(lines in (steps, steps - 1) for steps, lines in each):
        return 1
    return numbers.pop() if len(tiers) > 1 and len(numbers) == 1 else 0


def _parts(segment: Segment, others: Mapping[str, int], most: int) -> bool:
    """Whether several diffuse lines are one rank's parts: it logged the whole once, or one for each step, or they
    differ as ranks of one request never do. Stages beside the loop alone may be the first rank's."""
    steps = {segment.steps, segment.steps - 1, *(total for _, _, total in segment.bars)}
    times = [line.seconds for line in segment.stages if is_diffuse(line.name)]
    whole = any(is_forward(name) for name in others)
    return whole or most in steps or max(times) > min(times) * (1 + _ALIKE_PCT / 100)


def _share(segment: Segment, ranks: int, found: Lines) -> None:
    """Give the lines of unnamed ranks to them in turn, or say why that cannot be done."""
    diffuse, others = _counts(segment)
    most = max(diffuse.values(), default=0)
    writers = _writers(others) or ranks
    if most > 1 and (not ranks or (ranks == 1 and not _parts(segment, others, most))):
        found.refused = f"{most} diffuse lines name no rank: ranks or parts of one, nothing tells"
    elif ranks > 1 and most > ranks and writers == ranks:
        found.refused = f"{most} diffuse lines of {ranks} ranks without names cannot be told apart"
    elif ranks > 1 and (writers != ranks or any(count != ranks for count in diffuse.values())):
        found.refused = f"{most} diffuse lines that name no rank, {ranks} are usual: not whole"
    turn = Counter[str]()
    for line in segment.stages:
        worker = ("", str(turn[line.name] % max(1, ranks)))
        turn[line.name] += 1
        found.stages.setdefault(worker, {}).setdefault(line.name, []).append(line.seconds)
    if ranks > 1 and not found.refused:
        for name in diffuse:
            times = [stages[name][0] for stages in found.stages.values() if name in stages]
            if max(times) > min(times) * (1 + _ALIKE_PCT / 100):
                found.refused = f"{ranks} diffuse lines without names differ too much for ranks of one request"
