"""The grammar of a serving log: one pass from text to segments, one segment per request.

A stage line ends in ``[DiffusionPipelineProfiler] NAME took S.SSSSSSs`` (vllm-omni 0.30.0,
``diffusion/profiler/diffusion_pipeline_profiler.py:32``) and begins with whatever prefix. Two writers on one physical
line, a stage text that appears twice, or one that is cut cannot be attributed: such lines are counted by their reason,
never guessed at.
"""

from __future__ import annotations

import json
import re
from math import isfinite

from anchormatrix.engines.logs.bars import BAR, draw
from anchormatrix.engines.logs.lines import LONGEST_LINE, Worker, without_colours
from anchormatrix.engines.vllm_omni.features import is_denial, tells_of_features
from anchormatrix.engines.vllm_omni.prefix import innermost, is_worker, read_prefix, without_prefix, writers
from anchormatrix.engines.vllm_omni.segments import RawLog, Segment, StageLine

_STAGE_MARK = "[DiffusionPipelineProfiler]"
_STAGE = re.compile(
    r" *(\w[\w.\[\]]{0,200}) took ([+-]?(?:\d{1,9}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?|(?i:nan|inf))) ?(s|ms|us|µs|μs|ns)"
    r"(?: \[repeated \d+x across cluster\].*)?\s*",
    re.ASCII,
)
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
# The profiler's own warnings, of methods that a pipeline does not have (the same file, lines 69 and 74)
_MISSING = re.compile(r" *(?:Method path|Attribute) (\S{1,200}) (?:not found|is not callable)\s*")
_SHARED_WEIGHTS = "layerwise offload: dp_size="  # of the group that shares a copy of the weights, not of replicas
_SAMPLING = "sampling params:"
_STEPS = re.compile(r"[ ,]steps=([1-9]\d{0,4})(?=[\s,]|$)", re.ASCII)
_STAMP = re.compile(r"[A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d)", re.ASCII)
_ACCESS = re.compile(r'"POST /v1/\S+ HTTP/[\d.]+" (\d{3})\b', re.ASCII)
_JOB = '"POST /v1/videos HTTP'
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
# uvicorn's and vllm-omni's own words (entrypoints/openai/api_server.py:374) when the start is behind a server
_SERVING = ("Application startup complete", "Starting vLLM API server")
_NUMBER = re.compile(r"\bWorker (\d{1,6}): Scheduler loop started", re.ASCII)  # worker/diffusion_worker.py:1642
_CANONICAL = {
    "ulysses": "ulysses_degree",
    "ring": "ring_degree",
    "tensor_parallel_size": "tp_size",
    "cfg_parallel_size": "cfg_size",
    "pipeline_parallel_size": "pp_size",
}
_COLLECTED = ("log", "message", "msg")  # keys under which collectors of JSON lines keep the line itself


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
    raw.settle()
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
    if len(named) == 1 and workers and tells_of_features(line):
        raw.features.append((workers[0], line))
    if len(named) > 1:
        _spoil(raw, "two writers on one line")
    elif _SAMPLING in line:
        _sampling(raw, line)
    elif '"POST /' in line:
        _access(raw, line)
    elif any(mark in line for mark in _SERVING):
        raw.serving = True
    elif workers and ": Scheduler loop started" in line:
        _number(raw, line, workers[0])
    elif not raw.segments:
        if workers and not is_denial(line):
            _startup(raw, line)
    elif any(mark in line for mark in _LOST_MARKS):
        raw.segments[-1].lost = True
    return named[-1] if named else before


def _access(raw: RawLog, line: str) -> None:
    """An access line: the profiler's switch, a job accepted before it logs anything, or a request's answer."""
    if match := _PROFILE.search(line):
        raw.profiling = match[1] == "start"
    elif '"POST /v1/' in line:
        found = _ACCESS.search(line)
        status = int(found[1]) if found else None
        if _JOB in line:
            raw.accepted = status
        else:
            raw.answer(status, image="/v1/images/" in line)


def _spoil(raw: RawLog, why: str) -> None:
    raw.spoiled[why] += 1
    raw.now.unusable += 1


def _bars(raw: RawLog, line: str, before: Worker) -> tuple[str, Worker]:
    """Take the bars off a line: what follows one is another line, which no newline parts from it."""
    end = 0
    for match in BAR.finditer(line):
        head = line[end : match.start()]
        before = (writers(head) or [before])[-1]
        segment = raw.request_of(before)
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
    line_of = StageLine(worker, match[1], seconds, prefix.stamp, prefix.foreign)
    raw.request_of(worker, match[1]).stages.append(line_of)
    return worker


def _sampling(raw: RawLog, line: str) -> None:
    head, _, params = line.partition(_SAMPLING)
    steps = _STEPS.findall(params)
    if steps:
        stamp = _STAMP.search(head)
        begun = Segment(int(steps[-1]), stamp=stamp[1] if stamp else "", profiled=raw.profiling, status=raw.accepted)
        raw.segments.append(begun)
        raw.accepted = None
    else:
        _spoil(raw, "sampling parameters without steps")


def _number(raw: RawLog, line: str, worker: Worker) -> None:
    if match := _NUMBER.search(line):
        raw.numbers[worker[1]] = int(match[1])


def _startup(raw: RawLog, line: str) -> None:
    """Only what workers print counts: the server's echo of its arguments proves nothing."""
    if "pplying sequence parallelism to " in line:
        raw.applied[line.rsplit(" to ", 1)[1].strip()] = None
    if match := _CHECK.search(line) if "check: " in line else None:
        raw.checks.append((match[1], float(match[2]), float(match[3])))
    if _SHARED_WEIGHTS in line:
        return
    for name, size in _GROUP.findall(line):
        raw.groups.setdefault(_CANONICAL.get(name, name), set()).add(int(size))
