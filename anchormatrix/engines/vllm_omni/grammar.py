"""The grammar of a serving log: one pass from text to segments, one segment per request.

A stage line ends in ``[DiffusionPipelineProfiler] NAME took S.SSSSSSs`` (vllm-omni 0.30.0,
``diffusion/profiler/diffusion_pipeline_profiler.py:32``) and begins with whatever prefix. Two writers on one physical
line, a stage text that appears twice, or one that is cut cannot be attributed: such lines are counted by their reason,
never guessed at.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from anchormatrix.engines.logs.bars import BAR, Bars, draw
from anchormatrix.engines.logs.lines import LONGEST_LINE, Worker, without_colours
from anchormatrix.engines.vllm_omni.prefix import innermost, is_worker, read_prefix, without_prefix, writers

_STAGE_MARK = "[DiffusionPipelineProfiler]"
_STAGE = re.compile(
    r" *(\w[\w.\[\]]{0,200}) took ([+-]?(?:\d{1,9}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|(?i:nan|inf))) ?(s|ms|us|µs|μs|ns)"
    r"(?: \[repeated \d+x across cluster\].*)?\s*",
    re.ASCII,
)
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
# The profiler's own warnings, of methods that a pipeline does not have (the same file, lines 69 and 74)
_MISSING = re.compile(r" *(?:Method path|Attribute) (\S{1,200}) (?:not found|is not callable)\s*")
_SAMPLING = "sampling params:"
_STEPS = re.compile(r"[ ,]steps=([1-9]\d{0,4})(?=[\s,]|$)", re.ASCII)
_STAMP = re.compile(r"[A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d)", re.ASCII)
_ACCESS = re.compile(r'"POST /v1/\S+ HTTP/[\d.]+" (\d{3})\b', re.ASCII)
_PROFILE = re.compile(r'"POST /(start|stop)_profile HTTP/[\d.]+" 2\d\d\b', re.ASCII)
_LOST_MARKS = ("client disconnected", "ClientDisconnect", "before response was sent")
_GROUP = re.compile(
    r"\b(sp_size|ulysses(?:_degree)?|ring(?:_degree)?|allgather_degree|dp_size|tp_size|tensor_parallel_size"
    r"|cfg_size|cfg_parallel_size|pp_size|pipeline_parallel_size)[=:] ?(\d{1,6})\b",
    re.ASCII,
)
# What a worker says of its own result before it serves: `… check: WHAT: relative distance D, limit L`
_CHECK = re.compile(
    r"\bcheck: (\S.{0,200}?): relative distance (\d{1,9}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|inf|nan), "
    r"limit (\d{1,9}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?)(?=\s|$)",
    re.ASCII,
)
_FEATURES = ("ffload", "RAINFUSION_ATTN", "FASTVIDEO_VSA")  # marks of lines on launch features
_CANONICAL = {
    "ulysses": "ulysses_degree",
    "ring": "ring_degree",
    "tensor_parallel_size": "tp_size",
    "cfg_parallel_size": "cfg_size",
    "pipeline_parallel_size": "pp_size",
}
_COLLECTED = ("log", "message", "msg")  # keys under which collectors of JSON lines keep the line itself


class StageLine(NamedTuple):
    """One stage line: its writer, its time in seconds, its stamp, and what of its prefix is not understood."""

    worker: Worker
    name: str
    seconds: float
    stamp: str
    foreign: str


@dataclass
class Segment:
    """What lies between one sampling-parameter line and the next: the log of one request. ``status`` is the HTTP status
    sent, ``stamp`` when it began."""

    steps: int
    stamp: str = ""
    stages: list[StageLine] = field(default_factory=list)
    bars: Bars = field(default_factory=dict)
    unusable: int = 0
    status: int | None = None
    lost: bool = False
    profiled: bool = False


@dataclass
class RawLog:
    """A log taken apart. ``groups`` are the group sizes that workers printed while starting, ``checks`` what they found
    of their own results then: what was compared, the relative distance (``inf`` and ``nan`` too) and its limit.
    ``features`` are the workers' lines on launch features, at any time; ``early`` what was logged before any request;
    ``spoiled`` counts unusable lines by reason; ``missing`` are methods that the pipeline's profiler did not find."""

    workers: dict[Worker, None] = field(default_factory=dict)
    groups: dict[str, set[int]] = field(default_factory=dict)
    applied: dict[str, None] = field(default_factory=dict)
    checks: list[tuple[str, float, float]] = field(default_factory=list)
    features: list[tuple[Worker, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    early: Segment = field(default_factory=lambda: Segment(0))
    spoiled: Counter[str] = field(default_factory=Counter)
    missing: dict[str, None] = field(default_factory=dict)
    lines: int = 0
    copies: int = 1
    profiling: bool = False

    @property
    def now(self) -> Segment:
        """The request that lines belong to."""
        return self.segments[-1] if self.segments else self.early


def read_log(text: str) -> RawLog:
    """Take a log apart. Never raises: what cannot be read is counted."""
    lines = without_colours(text).split("\n")
    if not lines[-1]:
        lines.pop()
    raw = RawLog(lines=len(lines))
    raw.copies, lines = _once(lines)
    for line in lines:
        if line.startswith("{"):
            line = _collected(line)  # noqa: PLW2901
        writer = ("", "")
        for part in line.split("\r") if "\r" in line else (line,):
            if len(part) > LONGEST_LINE:
                _spoil(raw, f"longer than {LONGEST_LINE} characters, the rest not read")
            writer = _take(raw, part[:LONGEST_LINE], writer)
    return raw


def _once(lines: list[str]) -> tuple[int, list[str]]:
    """A log that was collected more than once, taken once: every line again at once, or the whole again. A whole begins
    with a start: requests alone may be alike."""
    if len(lines) < 2 or not lines[0].strip():
        return 1, lines
    turns = next((i for i, line in enumerate(lines) if line != lines[0]), len(lines))
    if 1 < turns < len(lines) and all(lines[i::turns] == lines[::turns] for i in range(turns)):
        return turns, lines[::turns]
    copies = lines.count(lines[0])
    size, rest = divmod(len(lines), copies)
    if copies > 1 and not rest and _SAMPLING not in lines[0] and lines[:size] * copies == lines:
        return copies, lines[:size]
    return 1, lines


def _collected(line: str) -> str:
    """The line that a collector wrapped into JSON (docker's json-file driver, Fluent Bit); itself when it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return line
    texts = (found.get(key) for key in _COLLECTED) if isinstance(found, dict) else ()
    return next((text.rstrip("\n") for text in texts if isinstance(text, str)), line)


def _take(raw: RawLog, line: str, before: Worker) -> Worker:
    """Read one line and return its writer. One without a writer was written on by the one ``before`` it on the same
    physical line."""
    if "%|" in line or "% Completed |" in line:
        line, before = _bars(raw, line, before)
    if line.count(" pid=") > 1:
        line = innermost(line)
    if _STAGE_MARK in line:
        return _stage(raw, line, before)
    named = writers(line)
    workers = [writer for writer in named if is_worker(writer[0])]
    for worker in workers:
        raw.workers[worker] = None
    if len(named) == 1 and workers and any(mark in line for mark in _FEATURES):
        raw.features.append((workers[0], line))
    if len(named) > 1:
        _spoil(raw, "two writers on one line")
    elif _SAMPLING in line:
        _sampling(raw, line)
    elif '"POST /st' in line:
        match = _PROFILE.search(line)
        raw.profiling = raw.profiling if match is None else match[1] == "start"
    elif not raw.segments:
        if workers:
            _startup(raw, line)
    elif '"POST /v1/' in line:
        match = _ACCESS.search(line)
        raw.segments[-1].status = int(match[1]) if match else None
    elif any(mark in line for mark in _LOST_MARKS):
        raw.segments[-1].lost = True
    return named[-1] if named else before


def _spoil(raw: RawLog, why: str) -> None:
    raw.spoiled[why] += 1
    raw.now.unusable += 1


def _bars(raw: RawLog, line: str, before: Worker) -> tuple[str, Worker]:
    """Take the bars off a line: what follows one is another line, which no newline parts from it."""
    end = 0
    for match in BAR.finditer(line):
        head = line[end : match.start()]
        before = (writers(head) or [before])[-1]
        segment = raw.now
        draw(segment.bars, before, without_prefix(head) if head.strip() else "", match, len(segment.stages))
        if is_worker(before[0]):
            raw.workers[before] = None
        end = match.end()
    return line[end:], before


def _stage(raw: RawLog, line: str, before: Worker) -> Worker:
    head, _, tail = line.rpartition(_STAGE_MARK)
    match = _STAGE.fullmatch(tail)
    if match is None and (absent := _MISSING.fullmatch(tail)):
        raw.missing[absent[1]] = None
        return before
    prefix = read_prefix(head)
    if prefix.spliced or _STAGE_MARK in head:
        _spoil(raw, "two writers on one line")
        return before
    if match is None:
        _spoil(raw, "a stage text that is cut")
        return before
    seconds = float(match[2]) * _UNITS[match[3]]
    if not isfinite(seconds) or seconds <= 0:
        _spoil(raw, "a stage time that is no positive number")
        return before
    worker = prefix.worker if prefix.worker[0] else before
    raw.now.stages.append(StageLine(worker, match[1], seconds, prefix.stamp, prefix.foreign))
    return worker


def _sampling(raw: RawLog, line: str) -> None:
    head, _, params = line.partition(_SAMPLING)
    steps = _STEPS.findall(params)
    if steps:
        stamp = _STAMP.search(head)
        raw.segments.append(Segment(int(steps[-1]), stamp[1] if stamp else "", profiled=raw.profiling))
    else:
        _spoil(raw, "sampling parameters without steps")


def _startup(raw: RawLog, line: str) -> None:
    """Only what workers print counts: the server's echo of its arguments proves nothing."""
    if "pplying sequence parallelism to " in line:
        raw.applied[line.rsplit(" to ", 1)[1].strip()] = None
    if match := _CHECK.search(line) if "check: " in line else None:
        raw.checks.append((match[1], float(match[2]), float(match[3])))
    for name, size in _GROUP.findall(line):
        raw.groups.setdefault(_CANONICAL.get(name, name), set()).add(int(size))
