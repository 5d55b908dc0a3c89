"""The grammar of a LightX2V server's log (f8aee98): one pass from text to segments.

A line is loguru's, ``YYYY-MM-DD HH:MM:SS.mmm | LEVEL | module:function:line - message``, of every rank into one stream;
a rank is named in the message where it is named at all. A task begins with ``Processing task ID`` and ends with
``Task ID completed successfully`` or a failure (``server/api/server.py:98``, ``:148``), both of rank 0, which waits
for the others between them (``server/services/inference/worker.py:121``). A timed span is ``[Profile] Rank N -
Level1_Log NAME cost S.SSSSSS seconds``, or ``Single GPU`` without a process group (``utils/profiler.py:165``).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from anchormatrix.engines.logs.lines import plain_lines

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \| ", re.ASCII)
_BEGIN = re.compile(r" - Processing task ([\w.-]{1,200})\s*$", re.ASCII)
_END = re.compile(r" - Task ([\w.-]{1,200}) (completed successfully|generation failed|processing failed\b)", re.ASCII)
_ASKED = " - modify config: {"
_QUOTED = re.compile(r" - (?:modify config|input_info): ")  # lines that hold the prompt
_STEP = re.compile(r"==> step_index: (\d{1,6}) / (\d{1,6})\b", re.ASCII)
_SPAN = re.compile(
    r"\[Profile\] (?:Rank (\d{1,6})|Single GPU) - (?:Level\d_Log )?([^\[\]|]{1,200}?) "
    r"cost (\d{1,9}\.\d{6}) seconds"
)
_READY = re.compile(r" - Rank (\d{1,6})/\d{1,6} initialization completed", re.ASCII)
_SWITCH = re.compile(r"'(seq_parallel|cfg_parallel|tensor_parallel|cpu_offload)': (True|False)\b")
_WORD = re.compile(r"'(seq_p_attn_type|offload_granularity)': '(\w{1,40})'")
_MESH = re.compile(r"DeviceMesh\(\(((?:\w{1,40}=\d{1,6}(?:, )?)+),?\)")
_OLD_MESH = re.compile(r"DeviceMesh\('\w+', (\[[\d\[\], ]{1,10000}\]), mesh_dim_names=\(([^()]{1,200})\)\)")


@dataclass
class Segment:
    """The log of one task: the steps asked for and announced, and what each rank timed, in order."""

    steps: int = 0
    announced: int = 0
    spans: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    began: datetime | None = None
    ended: datetime | None = None
    end: str = ""


@dataclass
class RawLog:
    """A log taken apart. ``ranks`` are those that finished their start; ``settings`` the resolved switches that rank 0
    printed (``told``), ``mesh`` the process groups it had made, by the engine's names; ``spans`` counts timed ones."""

    segments: list[Segment] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)
    told: bool = False
    spans: int = 0
    spoiled: Counter[str] = field(default_factory=Counter)
    lines: int = 0


def read_log(text: str) -> RawLog:
    """Take a log apart. Never raises: what cannot be read is counted."""
    raw = RawLog()
    config_follows = False
    for line in plain_lines(text):
        raw.lines += 1
        if config_follows and line.startswith(" {"):
            _settings(raw, line)
        config_follows = line.rstrip().endswith(" - Config:")
        _take(raw, line)
    return raw


def _take(raw: RawLog, line: str) -> None:
    now = raw.segments[-1] if raw.segments else None
    if _BEGIN.search(line):
        raw.segments.append(Segment(began=_moment(line)))
    elif now is None:
        raw.ranks.update(int(rank) for rank in _READY.findall(line))
    elif match := _END.search(line):
        now.end, now.ended = match[2], _moment(line)
    elif not now.end:
        _within(raw, now, line)


def _within(raw: RawLog, now: Segment, line: str) -> None:
    if _ASKED in line:
        asked = _literal(line[line.index(_ASKED) + len(_ASKED) - 1 :])
        steps = asked.get("infer_steps")
        if isinstance(steps, int) and steps > 0:
            now.steps = steps
    line = _QUOTED.split(line, maxsplit=1)[0]
    if match := _STEP.search(line):
        now.announced = int(match[2])
    spans = _SPAN.findall(line)
    for rank, name, seconds in spans:
        now.spans.setdefault(int(rank or 0), []).append((name.strip(), float(seconds)))
    raw.spans += len(spans)
    if line.count("[Profile] ") > len(spans):
        raw.spoiled["a timed span is not whole"] += 1


def _settings(raw: RawLog, line: str) -> None:
    """The resolved configuration: a table's Python text that holds objects, so it is searched, not evaluated."""
    raw.told = True
    raw.settings = {**dict(_SWITCH.findall(line)), **dict(_WORD.findall(line))}
    if match := _MESH.search(line):
        pairs = (part.split("=") for part in match[1].strip(", ").split(", "))
        raw.mesh = {name: int(size) for name, size in pairs}
    elif match := _OLD_MESH.search(line):
        shape: list[int] = []
        inner: Any = _value(match[1])
        while isinstance(inner, list) and inner:
            shape.append(len(inner))
            inner = inner[0]
        raw.mesh = dict(zip(re.findall(r"\w+", match[2]), shape, strict=False))


def _moment(line: str) -> datetime | None:
    match = _STAMP.search(line)
    try:
        return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S.%f") if match else None
    except ValueError:
        return None


def _literal(text: str) -> Mapping[str, Any]:
    found = _value(text.strip())
    return found if isinstance(found, dict) else {}


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
