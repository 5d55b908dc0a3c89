"""The events of a Chrome trace, read in pieces: the file is never in memory as a whole, nor are its unused fields.

A piece ends between two events. Where it does is guessed from the text and proven by decoding: JSON is read from the
left, so text that decodes as whole events ends where an event ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET, Raw

_PIECE = 1 << 20
_LEAST_PIECE = 1 << 12
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_BETWEEN = re.compile(rb"[\s,]*")
_COLON = re.compile(rb"\s*:\s*")
_STRING = rb'"(?:[^"\\]|\\.)*+"'
_KEY = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}\[{\"]++(?=[\s,\]}])")
_TOKEN = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb"|[\[\]{}])", re.DOTALL)
# Python's json module writes these, though JSON has no such numbers.
_NO_NUMBER = re.compile(_STRING + rb"|-?(?:NaN|Infinity)", re.DOTALL)
_OPENING, _CLOSING, _BRACE_OR_BRACKET = b"[{", b"]}", b"[]{}"


class DamagedError(Exception):
    """The text is no Chrome trace, or ends too early; says what, and at which byte."""


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={"external": "External id", "collective": "Collective name", "group": "Process Group Name"},
):
    """The arguments of an event that are used; ``UNSET`` where the event has none."""

    stream: Any = UNSET
    device: Any = UNSET
    correlation: Any = UNSET
    external: Any = UNSET
    collective: Any = UNSET
    group: Any = UNSET


_NO_ARGUMENTS = Arguments()
_NO_TIME = Raw(b"")


class TraceEvent(msgspec.Struct, gc=False):
    """The fields of an event that are used; ``ts`` and ``dur`` as they are written, so that no time becomes a float."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = UNSET
    tid: Any = UNSET
    ts: Raw = _NO_TIME
    dur: Raw = _NO_TIME
    args: Arguments | str | int | float | list[Any] | None = None

    @property
    def arguments(self) -> Arguments:
        """The arguments, none when they are no object."""
        return self.args if isinstance(self.args, Arguments) else _NO_ARGUMENTS

    def as_dict(self) -> dict[str, Any]:
        """Return the event in the form of the file."""
        found = {key: getattr(self, key) for key in ("ph", "cat", "name", "pid", "tid")}
        found |= {"ts": written(self.ts), "dur": written(self.dur)}
        found["args"] = msgspec.to_builtins(self.arguments)
        return {key: value for key, value in found.items() if value is not UNSET}


@dataclass
class Document:
    """What a trace holds beside its events. ``rank``: as stated; ``replaced``: places that were no UTF-8; ``empty``:
    the file holds nothing at all."""

    rank: int | None = None
    closed: bool = True
    listed: int = 0
    replaced: int = 0
    empty: bool = False


_events = msgspec.json.Decoder(list[TraceEvent | str | int | float | list[Any] | None])


def written(value: Raw) -> str:
    """Return a time as the file has it; quotation marks round a number are dropped."""
    text = bytes(value).decode()
    return text[1:-1] if text[:1] == '"' == text[-1:] and len(text) > 1 else text


class TraceReader:
    """One pass over a trace: its events go to ``take`` in pieces, each list with its first event's number."""

    def __init__(self, stream: BinaryIO, take: Callable[[list[Any]], None], restart: Callable[[], None]) -> None:
        self._stream, self._take, self._restart = stream, take, restart
        self._text, self._at, self._gone, self._size = b"", 0, 0, _PIECE
        self.found = Document()

    def read(self) -> Document:
        """Read all of it. Raises :class:`DamagedError`."""
        self._more()
        self._at = 3 if self._text.startswith(b"\xef\xbb\xbf") else 0
        start = self._next()
        if not start:
            self.found.empty = True
        elif start == b"[":
            self._at += 1
            self.found.listed, self.found.closed = 1, self._elements()
        elif start == b"{":
            self._at += 1
            self._members()
        else:
            raise DamagedError("is neither an object nor a list")
        if self._next():
            raise DamagedError(f"goes on behind its end (byte {self._place})")
        return self.found

    @property
    def _place(self) -> int:
        return self._gone + self._at

    def _more(self) -> bool:
        block = self._stream.read(max(_PIECE, len(self._text) - self._at))
        self._text, self._gone, self._at = self._text[self._at :] + block, self._place, 0
        return bool(block)

    def _next(self) -> bytes:
        """Return the next byte behind blanks and commas; none at the end."""
        while True:
            matched = _BETWEEN.match(self._text, self._at)
            self._at = matched.end() if matched else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _match(self, pattern: re.Pattern[bytes], what: str) -> bytes:
        while (matched := pattern.match(self._text, self._at)) is None or matched.end() == len(self._text):
            if not self._more():
                if matched is not None:
                    break
                raise DamagedError(f"{what} (byte {self._place})")
        self._at = matched.end()
        return matched[0]

    def _members(self) -> None:
        while (byte := self._next()) != b"}":
            if not byte:
                raise DamagedError("is cut off: its object is not closed")
            key = self._match(_KEY, "is cut off or damaged in a key")
            self._match(_COLON, "is damaged behind a key")
            byte = self._next()
            if key == b'"traceEvents"':
                if byte != b"[":
                    raise DamagedError("has no list of events: traceEvents is something else")
                self._at += 1
                self._restart()
                self.found.listed += 1
                if not self._elements():
                    raise DamagedError("is cut off: traceEvents is not closed")
            else:
                value = self._value(keep=key == b'"distributedInfo"')
                if value:
                    self.found.rank = _rank(value)
        self._at += 1

    def _value(self, *, keep: bool) -> bytes:
        """Step over one value; return its text when it is kept."""
        what, first = f"is cut off inside the value at byte {self._place}", self._next()
        if first not in (b"[", b"{"):
            return self._match(_KEY if first == b'"' else _SCALAR, what)
        parts: list[bytes] = []
        depth = 0
        while True:
            token = self._match(_TOKEN, what)
            if keep:
                parts.append(token)
            last = token[-1:]
            depth += (last in (b"[", b"{")) - (last in (b"]", b"}"))
            if depth == 0:
                return b"".join(parts)

    def _elements(self) -> bool:
        """Read events up to the end of their list; return whether it was closed."""
        while (byte := self._next()) != b"]":
            if not byte:
                return False
            if byte in (b"}", b":"):
                raise DamagedError(f"is damaged between two events (byte {self._place})")
            while len(self._text) - self._at < self._size and self._more():
                pass
            end = self._boundary()
            if end and self._decoded(self._text[self._at : end]):
                self._at = end
                self._size = min(_PIECE, 2 * self._size)
            elif self._size > _LEAST_PIECE:
                self._size //= 2
            else:
                place = self._place
                if not self._decoded(self._value(keep=True), odd=True):
                    raise DamagedError(f"is damaged: the event at byte {place} is no JSON")
                self._size = 2 * _LEAST_PIECE
        self._at += 1
        return True

    def _boundary(self) -> int:
        """Where an event seems to end last within the piece; 0 when nowhere."""
        limit, reach = self._at + self._size, _LEAST_PIECE
        while True:
            begin = max(self._at, limit - reach)
            end = max((one.start() + 1 for one in _BOUNDARY.finditer(self._text, begin, limit)), default=0)
            if end or begin == self._at:
                return end
            reach *= 4

    def _decoded(self, piece: bytes, *, odd: bool = False) -> bool:
        """Hand over the events of a piece; whether it is whole events. ``odd``: mend what can be."""
        replaced = 0
        if not piece.isascii():
            try:
                piece.decode()
            except UnicodeDecodeError:
                mended = piece.decode("utf-8", errors="replace")
                replaced = mended.count("\ufffd") - piece.count("\ufffd".encode())
                piece = mended.encode()
        if b"NaN" in piece or b"Infinity" in piece:
            piece = _NO_NUMBER.sub(lambda one: one[0] if one[0][:1] == b'"' else b"null", piece)
        try:
            events = _events.decode(b"[" + piece + b"]")
        except (msgspec.DecodeError, ValueError, RecursionError):
            mended_piece = _mended(piece) if odd else None
            if mended_piece is None:
                return False
            events = _events.decode(b"[" + mended_piece + b"]")
        self.found.replaced += replaced
        self._take(events)
        return True


def _mended(event: bytes) -> bytes | None:
    """Return an event that Python's json module reads and a strict reader does not (control characters), or None."""
    try:
        value = json.loads(event, parse_float=str, strict=False)
        return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="replace")
    except (ValueError, RecursionError):
        return None


def _rank(info: bytes) -> int | None:
    try:
        value = json.loads(info.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    rank = value.get("rank") if isinstance(value, dict) else None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None
