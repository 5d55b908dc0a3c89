"""The grammar of SGLang's diffusion log (0.5.23, below ``multimodal_gen/runtime``): one pass from text to segments.

A line is ``[MM-DD HH:MM:SS] MESSAGE`` (``utils/logging_utils.py:457``), of global rank 0 only and without its name. A
request begins with ``Sampling params:`` over several lines (``pipelines_core/schedule_batch.py:439``); a stage ends
with ``[NAME] finished in S.SSSS seconds`` (``utils/perf_logger.py:352``). A message may stand behind a bar's state on
one physical line: bars have no newline.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchormatrix.engines.logs.bars import BAR, Bars, draw
from anchormatrix.engines.logs.lines import LONGEST_LINE, Worker, without_colours

RANK_0: Worker = ("", "")
_BEGIN = "Sampling params:"
_STEPS = re.compile(r"^ *infer_steps: ([1-9]\d{0,5})\s*$", re.ASCII)
_STAGE = re.compile(r"\[([A-Za-z_]\w{0,200})\] finished in (\d{1,9}\.\d{1,30}) seconds", re.ASCII)
_PROFILING = re.compile(r"\bProfiling request: \S{1,200} for ", re.ASCII)  # utils/profiler.py:109
_FAILED = re.compile(r"\[([A-Za-z_]\w{0,200})\] Error during execution after ", re.ASCII)
_ENDED = re.compile(r"\bPixel data generated successfully in \d|\bMetrics dumped to: ", re.ASCII)
_ACCESS = re.compile(r'"POST /v1/(?:images/generations|videos) HTTP/[\d.]+" (\d{3})\b', re.ASCII)
_ARGUMENTS = "server_args: {"
_WORLD = re.compile(r"\bInitializing distributed environment with world_size=(\d{1,6}),", re.ASCII)
# pipeline_configs/base.py:644: the sequence is then whole on every rank
_UNSPLIT = re.compile(r"Latent time dim \d+ is not divisible by SP degree \d+; skipping sequence shard")
_STAMP = re.compile(r"\[\d\d-\d\d \d\d:\d\d:\d\d\]", re.ASCII)


@dataclass
class Segment:
    """The log of one request. ``ended`` says that the server called it finished, ``failed`` is a stage that broke;
    ``profiled`` that the profiler was on."""

    steps: int = 0
    stages: list[tuple[str, float]] = field(default_factory=list)
    bars: Bars = field(default_factory=dict)
    status: int | None = None
    ended: bool = False
    failed: str = ""
    profiled: bool = False


@dataclass
class RawLog:
    """A log taken apart. ``arguments`` are the server's own, resolved; ``world`` the size of the process group that
    rank 0 joined (0: none); ``unsplit`` the line that says that a sequence was not split."""

    segments: list[Segment] = field(default_factory=list)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    world: int = 0
    unsplit: str = ""
    spoiled: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    early_bars: int = 0


def read_log(text: str) -> RawLog:
    """Take a log apart. Never raises: what cannot be read is counted."""
    lines = without_colours(text).split("\n")
    if not lines[-1]:
        lines.pop()
    raw = RawLog(lines=len(lines))
    posted: int | None = None
    for line in lines:
        if len(line) > LONGEST_LINE and "\r" not in line:
            raw.spoiled[f"longer than {LONGEST_LINE} characters, the rest not read"] += 1
        for part in line.split("\r"):
            posted = _take(raw, part[:LONGEST_LINE], posted)
    return raw


def _take(raw: RawLog, line: str, posted: int | None) -> int | None:
    """Read one line; returns the status of a request that was answered before its own first line (a job is)."""
    now = raw.segments[-1] if raw.segments else None
    if match := _ACCESS.search(line):
        if now is not None and now.status is None and now.ended:
            now.status = int(match[1])
        else:
            posted = int(match[1])
    if "%|" in line:
        _draw(raw, now, line)
    if _BEGIN in line:
        raw.segments.append(Segment(status=posted))
        return None
    if now is None:
        _start_up(raw, line)
        return posted
    if not now.steps and (match := _STEPS.match(line)):
        now.steps = int(match[1])
    for name, seconds in _STAGE.findall(line):
        now.stages.append((name, float(seconds)))
    if match := _FAILED.search(line):
        now.failed = match[1]
    if _PROFILING.search(line):
        now.profiled = True
    if _ENDED.search(line):
        now.ended = True
    if match := _UNSPLIT.search(line):
        raw.unsplit = match[0]
    return posted


def _start_up(raw: RawLog, line: str) -> None:
    if match := _WORLD.search(line):
        raw.world = int(match[1])
    place = line.find(_ARGUMENTS)
    if place < 0:
        return
    try:
        found = json.loads(line[place + len(_ARGUMENTS) - 1 :])
    except (ValueError, RecursionError):
        raw.spoiled["the server's arguments are not whole"] += 1
        return
    raw.arguments = found


def _draw(raw: RawLog, now: Segment | None, line: str) -> None:
    """Put the states of bars to the request they were drawn in. Messages between two states are no label."""
    behind = 0
    for match in BAR.finditer(line):
        label = line[behind : match.start()]
        label = "" if _STAMP.search(label) else label.strip(" :")
        behind = match.end()
        if now is None:
            raw.early_bars += 1
        else:
            draw(now.bars, RANK_0, label, match, len(now.stages))
