"""What stands before a text in a line: who wrote it, and what of it nobody here understands.

Loggers, launchers, containers and collectors each put their own text before a server's. None of it hides the line:
known kinds are taken off, the rest is kept as ``foreign`` and named. Where each comes from: ``(NAME pid=N)`` vllm
``utils/system_utils.py`` (``decorate_logs``, at the start of a physical line only) and Ray's actors, with ``ip=``;
``LEVEL MM-DD HH:MM:SS [file:line]`` vllm ``logger.py``, whose ``VLLM_LOGGING_PREFIX`` puts any text before it, such as
vllm-omni's ``[Stage-0]``; ``[rank0]`` PyTorch's ``c10d``, ``[default0]:`` torchrun ``--tee``, ``[1,0]<stdout>`` mpirun
``--tag-output``; ``TIME stderr F`` the container runtime interface's log format, ``name-1  |`` docker compose,
``[pod/NAME/CONTAINER]`` kubectl ``logs --prefix``, ``Mon DD HH:MM:SS host unit[N]:`` journald's short output.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from anchormatrix.engines.logs.lines import Worker

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_WRITER = r"\(([A-Za-z_][\w.-]{0,80}(?: rank=\d{1,6})?),? ?pid=(\d{1,10})(?:, ip=([\w.:]{1,60}))?\)"
_HEADER = r"\b[A-Z]+ (\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,9})? \[[^\[\]()]*\]"
_RANK = r"\[? ?\b(?:[Rr]ank|RANK|default)[ =:_]?(\d{1,6})\b ?\]?:?|\[\d{1,4},(\d{1,6})\]<std(?:out|err)>:?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_OTHER = "|".join(
    (
        rf"\[?\b\d{{4}}-\d\d-\d\d[T -]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?\]?",
        r"\bstd(?:out|err) [FP](?= )",
        rf"\b{_MONTH} [ \d]\d {_CLOCK} \S{{1,80}} [^\s:\[]{{1,80}}(?:\[\d+\])?:",
        r"^[\w.-]{1,80} *\| ",
        r"^\[(?:pod|container)/[\w./-]{1,160}\]",
        r"\[Stage-\d{1,4}\]",
        rf"\[?\b\d\d-\d\d {_CLOCK}\]?",
        rf"\[?\b{_CLOCK}\]?",
        r"\[?\b(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b\]?:?",
        r"\[(?:pid[ =:]?)?\d{1,10}\]:?",
        r"\[[\w./<>-]{1,160}:\d{1,6}\]",
        r"\bvllm(?:_omni)?(?:\.\w{1,60}){0,8}:?(?= )",
    )
)
_USUAL = re.compile(rf"(?:{_WRITER} +)?{_HEADER} ", re.ASCII)
_NAMES = re.compile(_WRITER, re.ASCII)
_OUTER = re.compile(rf"(?:{_WRITER} {{0,4}})+(?={_WRITER})", re.ASCII)
_KNOWN = re.compile(f"(?:{_WRITER})|(?:{_HEADER})|(?:{_RANK})|(?:{_OTHER})", re.ASCII)
_SHOWN = 80  # characters of a foreign text that are kept
_CUT = re.compile(r"[\s|:,;-]+")


class Prefix(NamedTuple):
    """``worker`` is who wrote the line, ``stamp`` the ``MM-DD HH:MM:SS`` of vllm's own header, ``foreign`` what is not
    understood; ``spliced``: two writers' texts on one line."""

    worker: Worker
    stamp: str
    foreign: str
    spliced: bool


def read_prefix(text: str) -> Prefix:
    """Take a prefix apart. Of writers that follow each other the last wrote it: launchers name their actor first."""
    if usual := _USUAL.fullmatch(text):  # most lines by far
        return Prefix(_worker(*usual.groups()[:3]), usual[4], "", False)
    worker, rank, stamp, headers, spliced = ("", ""), "", "", 0, False
    foreign, end = [], 0
    for match in _KNOWN.finditer(text):
        between = _CUT.sub(" ", text[end : match.start()]).strip()
        foreign += [between] if between else []
        end = match.end()
        tag, process, address, time, number, tagged = match.groups()
        if tag:
            spliced = spliced or (bool(worker[0]) and (bool(between) or headers > 0))
            worker = _worker(tag, process, address)
        elif time:
            headers, stamp = headers + 1, time
        else:
            rank = number or tagged or rank
    last = _CUT.sub(" ", text[end:]).strip()
    foreign += [last] if last else []
    if rank and not worker[0]:
        worker = (f"rank{int(rank)}", "")
    shown = "".join(char if char.isprintable() else " " for char in " ".join(foreign)[:_SHOWN])
    return Prefix(worker, stamp, shown, spliced or headers > 1)


def writers(line: str) -> list[Worker]:
    """Whoever a line names as its writers, in order."""
    return [_worker(*found) for found in _NAMES.findall(line)] if " pid=" in line else []


def _worker(tag: str | None, process: str, address: str | None) -> Worker:
    return (tag, f"{process}@{address}" if address else process) if tag else ("", "")


def innermost(line: str) -> str:
    """A line without the names of launchers round its writer's."""
    outer = _OUTER.search(line)
    return line[: outer.start()] + line[outer.end() :] if outer else line


def without_prefix(text: str) -> str:
    """What is left of a text when all that is known of prefixes is taken off."""
    return _CUT.sub(" ", _KNOWN.sub(" ", text)).strip()


def is_worker(tag: str) -> bool:
    """Whether a writer is one of the ranks by its name; the server's own processes are not."""
    return "Worker" in tag
