"""The lines of a vendor tool's text: cleaned, remembering where they stood, with errors that say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from anchormatrix.errors import InputError, quoted_line
from anchormatrix.records.host import Card

T = TypeVar("T")

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LIMIT = 4_000_000
_WORST_FIRST = ("Fault", "Critical", "Alarm", "Warning", "OK")
HEALTHY, WARNING = "OK", "Warning"


@dataclass(frozen=True)
class Line:
    """One line of a command's output, without colours and outer blanks; ``number`` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class Source:
    """The output of one command, for errors that name the command and the line."""

    command: str
    lines: tuple[Line, ...]

    def error(self, line: Line | None, what: str, expected: str = "", todo: str = "") -> InputError:
        """The :class:`InputError` for a line (``None``: the end of the output)."""
        if line is None:
            last = self.lines[-1] if self.lines else None
            where, shown = f"output of `{self.command}`, end", f" after {quoted_line(last.text)}" if last else ""
        else:
            where, shown = f"output of `{self.command}`, line {line.number}", f" {quoted_line(line.text)}"
        return InputError(
            what + shown,
            where=where,
            expected=expected,
            todo=todo or f"run `{self.command}` on the host and compare",
        )

    def number(self, line: Line, text: str, what: str) -> int:
        """A whole number that a table cell must hold."""
        if not (text.isascii() and text.isdigit() and len(text) <= 12):
            raise self.error(line, f"{what} is {quoted_line(text)} in", "a whole number")
        return int(text)

    def reading(self, line: Line, text: str, what: str) -> float | None:
        """A measured value that the tool may not have: ``-`` and ``NA`` are ``None``."""
        if text in ("-", "NA", "N/A", "[N/A]", "[Not Supported]"):
            return None
        if not re.fullmatch(r"-?\d{1,6}(\.\d{1,3})?", text):
            raise self.error(line, f"{what} is {quoted_line(text)} in", "a number, - or NA")
        return float(text)


@dataclass(frozen=True)
class Listing:
    """The cards that a tool lists, and what it said beside its table."""

    cards: tuple[Card, ...]
    notes: tuple[str, ...] = ()


def beside(command: str, lines: Sequence[Line]) -> tuple[str, ...]:
    """A note for lines that are no part of a table: their number and the first of them."""
    if not lines:
        return ()
    return (f"`{command}` says beside its table, in {len(lines)} lines: {quoted_line(lines[0].text.strip())}",)


def source(text: str, command: str) -> Source:
    """Split a command's output into its non-blank lines.

    Raises :class:`InputError` when it is empty, larger than any real output, or not text.
    """
    if len(text) > _LIMIT or "\x00" in text:
        raise InputError(
            "is not the text of this tool" if "\x00" in text else f"is {len(text)} characters long",
            where=f"output of `{command}`",
            expected="a table of a few hundred lines",
        )
    lines = tuple(Line(number, clean) for number, clean in _clean_lines(text))
    found = Source(command, lines)
    if not lines:
        raise found.error(None, "is empty", "a table", f"run `{command}` on the host: the driver may not be loaded")
    return found


def last_whole(found: Source, beginnings: Sequence[int], read: Callable[[Source], Listing]) -> Listing:
    """The last whole one of the outputs that begin at these places of a text, with a note of how many there are.

    A file that outputs were appended to holds the newest last. Raises what ``read`` raises of the last one when none is
    whole.
    """
    outputs = [Source(found.command, found.lines[a:b]) for a, b in pairwise((*beginnings, len(found.lines)))]
    broken: list[tuple[Source, InputError]] = []
    for output in reversed(outputs):
        try:
            listing = read(output)
        except InputError as error:
            broken.append((output, error))
            continue
        if len(outputs) == 1:
            return listing
        places = " and ".join(str(_first(one)) for one in outputs)
        note = f"there are {len(outputs)} outputs of `{found.command}`, from lines {places}: "
        note += f"that from line {_first(output)} counts"
        note += "".join(f"; the one from line {_first(one)} cannot be read: {error.what}" for one, error in broken[:1])
        return Listing(listing.cards, (*listing.notes, note))
    raise broken[0][1]


def the_same(found: Source, beginnings: Sequence[int], read: Callable[[Source], T]) -> T:
    """What each of the outputs that begin at these places of a text says: all the same.

    For what does not change from one reading to the next. Raises :class:`InputError` naming both places when two
    differ.
    """
    outputs = [Source(found.command, found.lines[a:b]) for a, b in pairwise((*beginnings, len(found.lines)))]
    first, *others = [read(output) for output in outputs]
    for output, said in zip(outputs[1:], others, strict=True):
        if said != first:
            what = f"differs from the output that begins at line {_first(outputs[0])}"
            raise found.error(output.lines[0], what, "outputs of one host", "give one output as it comes")
    return first


def headers(found: Source, label: re.Pattern[str]) -> list[int]:
    """Where link matrices begin in a text: at its first line with a card's label, and at each further one with several
    labels, or alike; a row has the label of its own card alone. The start of a text without any."""
    places = [place for place, line in enumerate(found.lines) if label.match(line.text.strip())]
    first = found.lines[places[0]].text.strip() if places else ""
    return [
        place
        for place in places
        if (text := found.lines[place].text.strip()) == first or sum(map(bool, map(label.fullmatch, text.split()))) > 1
    ] or [0]


def _first(output: Source) -> int:
    return output.lines[0].number


def uncoloured(text: str) -> str:
    """A text without the escapes that colour it."""
    return _ANSI.sub("", text)


def _clean_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(uncoloured(text).split("\n"), start=1):
        clean = raw.rstrip("\r")
        if clean.strip():
            yield number, clean


def known_health(word: str) -> str:
    """A health word in the vocabulary OK, Warning, Alarm, Critical, Fault; any other word is returned as it is."""
    return next((known for known in _WORST_FIRST if known.lower() == word.lower()), word)


def aligned(heading: Line, line: Line) -> list[str] | None:
    """Cells cut at a header's columns, so that a name may hold a ``|``; ``None`` when the line is not aligned."""
    header, text = heading.text.strip(), line.text.strip()
    bars = [i for i, char in enumerate(header) if char == "|"]
    if len(text) != len(header) or any(text[i] != "|" for i in bars):
        return None
    return [text[a + 1 : b].strip() for a, b in pairwise(bars)]


def two(cell: str) -> tuple[str, str]:
    """The first word of a cell, and the rest."""
    first, _, rest = cell.partition(" ")
    return first, rest.strip()
