"""The grammar of a serving log: one pass from text to segments, one segment per request.

A stage line is ``(WORKER pid=N) LEVEL MM-DD HH:MM:SS [file:line] [DiffusionPipelineProfiler] NAME took S.SSSSSSs`` and
nothing else. Two writers on one physical line, a stage text that appears twice, or a stage line whose beginning or end
is missing cannot be attributed: such lines are counted, never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Worker = tuple[str, str]  # tag and process id as logged; two empty texts when a line names no worker

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX = re.compile(r"\((\w+) pid=(\d{1,10})\)", re.ASCII)
_STAGE = re.compile(
    r"(?:\((DiffusionWorker\w*) pid=(\d{1,10})\) +)?[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\[\]]*\] "
    r"\[DiffusionPipelineProfiler\] (\w[\w.]*) took (\d{1,9}(?:\.\d{1,30})?)s\s*",
    re.ASCII,
)
_STAGE_MARK = "[DiffusionPipelineProfiler]"
_SAMPLING = re.compile(r"sampling params: (?:.*[ ,])?steps=([1-9]\d{0,4})(?=[\s,]|$)", re.ASCII)
_BAR = re.compile(r"(?<![\d/])(\d{1,6})/(\d{1,6}) \[(?:(\d{1,4}):)?(\d{1,3}):(\d\d)<", re.ASCII)
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


@dataclass
class Segment:
    """What lies between one sampling-parameter line and the next: the log of one request.

    ``stages`` maps a worker to its stage names and their times in seconds; ``bars`` a worker to the
    (iterations done, total, elapsed seconds) that its progress bar showed; ``status`` is the HTTP status sent.
    """

    steps: int
    stages: dict[Worker, dict[str, list[float]]] = field(default_factory=dict)
    bars: dict[Worker, list[tuple[int, int, int]]] = field(default_factory=dict)
    unusable: int = 0
    status: int | None = None
    lost: bool = False
    profiled: bool = False


@dataclass
class RawLog:
    """A log taken apart. ``groups`` are the group sizes that workers printed while starting, ``checks`` what they found
    of their own results then: what was compared, the relative distance (``inf`` and ``nan`` too) and its limit.
    ``features`` are the workers' lines on launch features, at any time."""

    workers: dict[Worker, None] = field(default_factory=dict)
    groups: dict[str, set[int]] = field(default_factory=dict)
    applied: dict[str, None] = field(default_factory=dict)
    checks: list[tuple[str, float, float]] = field(default_factory=list)
    features: list[tuple[Worker, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    lines: int = 0
    unusable: int = 0
    stage_lines: int = 0
    profiling: bool = False


def plain_lines(text: str) -> Iterator[str]:
    """The lines of a log without colours; what a carriage return wrote over is a line of its own."""
    for line in _ANSI.sub("", text).split("\n"):
        yield from line.split("\r")


def read_log(text: str) -> RawLog:
    """Take a log apart. Never raises: what cannot be read is counted."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    raw = RawLog(lines=len(lines))
    for line in lines:
        if "\r" in line:
            for part in line.split("\r"):
                _take(raw, part)
        else:
            _take(raw, line)
    return raw


def _take(raw: RawLog, line: str) -> None:
    writers = _PREFIX.findall(line) if " pid=" in line else []
    workers = [writer for writer in writers if writer[0].startswith("DiffusionWorker")]
    for worker in workers:
        raw.workers[worker] = None
    if len(writers) == 1 and workers and any(mark in line for mark in _FEATURES):
        raw.features.append((workers[0], line))
    if len(writers) > 1 or line.count(_STAGE_MARK) > 1:
        _spoiled(raw)
    elif _STAGE_MARK in line:
        _stage(raw, line)
    elif "sampling params:" in line:
        _sampling(raw, line)
    elif '"POST /st' in line:
        match = _PROFILE.search(line)
        raw.profiling = raw.profiling if match is None else match[1] == "start"
    elif not raw.segments:
        if workers:
            _startup(raw, line)
    elif "%|" in line:
        _bar(raw.segments[-1], line, workers)
    elif '"POST /v1/' in line:
        match = _ACCESS.search(line)
        raw.segments[-1].status = int(match[1]) if match else None
    elif any(mark in line for mark in _LOST_MARKS):
        raw.segments[-1].lost = True


def _spoiled(raw: RawLog) -> None:
    raw.unusable += 1
    if raw.segments:
        raw.segments[-1].unusable += 1


def _stage(raw: RawLog, line: str) -> None:
    match = _STAGE.fullmatch(line)
    seconds = float(match[4]) if match else 0.0
    if not match or seconds <= 0:
        _spoiled(raw)
        return
    raw.stage_lines += 1
    if raw.segments:
        worker = (match[1] or "", match[2] or "")
        raw.segments[-1].stages.setdefault(worker, {}).setdefault(match[3], []).append(seconds)


def _sampling(raw: RawLog, line: str) -> None:
    match = _SAMPLING.search(line)
    if match:
        raw.segments.append(Segment(int(match[1]), profiled=raw.profiling))
    else:
        _spoiled(raw)


def _bar(segment: Segment, line: str, workers: Sequence[Worker]) -> None:
    match = _BAR.search(line)
    if match:
        elapsed_s = int(match[3] or 0) * 3600 + int(match[4]) * 60 + int(match[5])
        worker = workers[0] if workers else ("", "")
        segment.bars.setdefault(worker, []).append((int(match[1]), int(match[2]), elapsed_s))


def _startup(raw: RawLog, line: str) -> None:
    """Only what workers print counts: the server's echo of its arguments proves nothing."""
    if "pplying sequence parallelism to " in line:
        raw.applied[line.rsplit(" to ", 1)[1].strip()] = None
    if match := _CHECK.search(line) if "check: " in line else None:
        raw.checks.append((match[1], float(match[2]), float(match[3])))
    for name, size in _GROUP.findall(line):
        raw.groups.setdefault(_CANONICAL.get(name, name), set()).add(int(size))
