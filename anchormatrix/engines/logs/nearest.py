"""Nearest lines: what of a log looks most like a stage time, where none of it is understood.

An engine's next release may say the same in other words. Whoever reads that nothing was timed then sees at once whether
the lines are there.
"""

from __future__ import annotations

import re

from anchormatrix.engines.logs.lines import plain_lines

_TIME = re.compile(r"(?<![\w.])\d{1,9}(?:\.\d{1,12})? ?(?:s|sec|seconds|ms|milliseconds)\b")
_WORDS = re.compile(
    r"diffus|denois|sampl|pipeline|profil|stage|\bstep|took|cost|elapsed|finished|duration", re.IGNORECASE
)
_SHOWN = 160
_ENOUGH = 2  # a time and a word of the field


def nearest_lines(text: str, count: int = 3) -> tuple[str, ...]:
    """The ``count`` lines that look most like a stage time, printable and cut, in the order of the log; each kind once.

    Lines that differ in numbers only are of one kind.
    """
    kinds: dict[str, tuple[int, int, str]] = {}
    for place, line in enumerate(plain_lines(text)):
        times = _TIME.findall(line)
        score = min(2, len(times)) + len({word.lower() for word in _WORDS.findall(line)})
        kind = re.sub(r"\d+", "N", line)
        if times and score > _ENOUGH and kind not in kinds:
            kinds[kind] = (-score, place, _printable(line))
    best = sorted(kinds.values())[:count]
    return tuple(line for _, _, line in sorted(best, key=lambda found: found[1]))


def _printable(line: str) -> str:
    shown = "".join(sign if sign.isprintable() else " " for sign in line).strip()
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
