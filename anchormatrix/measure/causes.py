"""Causes of failures: from what a server logged to what went wrong, what to check and what helps.

The knowledge is data, ``causes.yaml`` beside this file; here it is only matched. Errors of single ranks echo through
the others, so a line that tells a reason goes before one that tells only where it broke, and both before the news that
another rank is gone. Among equals the first line counts: the rank that failed first wrote it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from anchormatrix.config.yaml_file import read_config
from anchormatrix.engines.logs.lines import plain_lines
from anchormatrix.records.base import Record
from anchormatrix.records.session import Failure

_LINE_CHARS = 400
_REQUEST = "sampling params:"
_RANK = re.compile(r"\(\w+(?: rank=\d+)? pid=\d+\)|\[rank\d+\]")
_HEAD = r"^(?:\([^()]*\) *|\[rank\d+\]:? *|\[[\d :-]+\] *)*"
_CALM = re.compile(_HEAD + r"\[?(?:INFO|DEBUG|WARNING|EVENT)\]?\b|.* NCCL INFO ")
_EXCEPTION = re.compile(
    _HEAD + r"(?:[A-Z]+ \S+ \S+ \[[^\]]*\] *)?(?:(?:\w+\.)*\w*(?:Error|Exception)\b|Fatal Python error|what\(\): )"
)
_ERROR = re.compile(_HEAD + r"\[?(?:ERROR|CRITICAL|FATAL)\]?\b(?!.*(?:Traceback \(most recent|\]\s+File \"|\]\s*$))")


class Says(enum.StrEnum):
    """How much a line tells, from most to least."""

    REASON = "reason"
    PLACE = "place"
    ECHO = "echo"


_WEIGHT = tuple(Says)


class Entry(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of failure. ``again``: whether a second try may end otherwise (None: when it had been timed before)."""

    id: str
    patterns: tuple[str, ...]
    says: Says = Says.REASON
    cause: str
    check: str
    cure: str
    again: bool | None = None
    source: str


@cache
def catalogue() -> dict[str, Entry]:
    """All entries by id, in the order in which they are tried on a line."""
    values = read_config(Path(__file__).with_suffix(".yaml"))
    return {entry.id: entry for entry in msgspec.convert(values["failures"], list[Entry])}


@cache
def _rules() -> tuple[tuple[Entry, re.Pattern[str]], ...]:
    return tuple((entry, re.compile("|".join(entry.patterns))) for entry in catalogue().values())


@lru_cache(maxsize=1 << 14)
def _entry(line: str) -> Entry | None:
    """The entry that a line belongs to. Remembered, because a starting server's log is asked about twice a second."""
    return None if _CALM.match(line) else next((entry for entry, rule in _rules() if rule.search(line)), None)


def known_failure(text: str) -> Failure | None:
    """What the catalogue makes of a log; None when it knows no line of it.

    Looked at are the last two requests, or all of a log without requests.
    """
    best: tuple[int, Entry, str] | None = None
    for line in _late_lines(text):
        entry = _entry(line)
        if entry is None:
            continue
        weight = _WEIGHT.index(entry.says)
        if best is None or weight < best[0]:
            best = weight, entry, line
        if weight == 0:
            break
    return _failure(best[1], best[2]) if best else None


def failure_of(text: str, exit_code: int | None = None) -> Failure:
    """Why a server is gone: what the catalogue knows, else ``unknown`` with the first error in the log.

    ``exit_code`` is the main process's own; it counts like a last line that says so.
    """
    found = known_failure(f"{text}\nexit code {exit_code}" if exit_code else text)
    return found or Failure(id="unknown", cause="unknown", line="".join(first_errors(text)[:1]))


def first_errors(text: str) -> tuple[str, ...]:
    """The first error of each rank as logged: its first exception, else its first line of level ERROR."""
    found: dict[str, tuple[bool, int, str]] = {}
    for place, line in enumerate(_late_lines(text)):
        exception = bool(_EXCEPTION.match(line))
        if exception or _ERROR.match(line):
            rank = _RANK.search(line)
            name = rank[0] if rank else ""
            found[name] = min(found.get(name, (True, place, line)), (not exception, place, line))
    return tuple(_clip(line) for _, _, line in sorted(found.values(), key=lambda item: item[1]))


def may_differ(failure: Failure) -> bool | None:
    """Whether a second try may end otherwise; None when that hangs on how far the first one got."""
    entry = catalogue().get(failure.id)
    return entry.again if entry else None


def _failure(entry: Entry, line: str) -> Failure:
    return Failure(entry.id, entry.cause, _clip(line), entry.check, entry.cure, entry.source)


def _late_lines(text: str) -> Iterator[str]:
    """The lines from the request before the last one on: a server is given up after two failed requests in a row."""
    last = text.rfind(_REQUEST)
    before = text.rfind(_REQUEST, 0, max(last, 0))
    return plain_lines(text[max(before if before >= 0 else last, 0) :])


def _clip(line: str) -> str:
    printable = " ".join("".join(char if char.isprintable() else " " for char in line).split())
    return printable if len(printable) <= _LINE_CHARS else f"{printable[: _LINE_CHARS - 1]}…"
