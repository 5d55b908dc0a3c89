"""One line of the doctor: a topic, whether it is in order, what was seen, and the cure."""

from __future__ import annotations

import enum

from anchormatrix.errors import AnchorMatrixError
from anchormatrix.records.base import Record


class Status(enum.StrEnum):
    """Whether a thing is in order. ``NOT_CHECKED`` says why it could not be looked at; that is no fault."""

    OK = "ok"
    WRONG = "wrong"
    NOT_CHECKED = "not checked"


class Line(Record, frozen=True, kw_only=True):
    """What was seen of one thing. A wrong one has its ``cure``."""

    topic: str
    status: Status
    text: str
    cure: str = ""


def ok(topic: str, text: str) -> Line:
    """A thing in order."""
    return _line(topic, Status.OK, text)


def wrong(topic: str, text: str, cure: str) -> Line:
    """A thing that a run would fail on, or be wrong by."""
    return _line(topic, Status.WRONG, text, cure)


def not_checked(topic: str, why: str) -> Line:
    """A thing that was not looked at."""
    return _line(topic, Status.NOT_CHECKED, why)


def failed(topic: str, error: AnchorMatrixError, cure: str) -> Line:
    """A look that failed: what the error says, with its own cure where it has one."""
    said = AnchorMatrixError(error.what, where=error.where, expected=error.expected)
    return wrong(topic, str(said), " ".join((error.todo or cure).split()))


def _line(topic: str, status: Status, text: str, cure: str = "") -> Line:
    """A line for a terminal: much of it was said by tools and files of the host."""
    return Line(topic=topic, status=status, text=_printable(text), cure=_printable(cure))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
