"""Lines of a log: without colours, cut to a length, and who may have written one."""

from __future__ import annotations

import re
from collections.abc import Iterator

Worker = tuple[str, str]  # tag and process id as logged; two empty texts when a line names no worker

LONGEST_LINE = 1 << 16  # characters of a line that are looked at
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def without_colours(text: str) -> str:
    """The text without escape sequences of terminals."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def plain_lines(text: str) -> Iterator[str]:
    """The lines of a log without colours; what a carriage return wrote over is a line of its own."""
    for line in without_colours(text).split("\n"):
        yield from (part[:LONGEST_LINE] for part in line.split("\r"))
