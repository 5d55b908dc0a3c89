"""Errors a person can act on: what happened, where, what was expected, what to do."""

from __future__ import annotations

import errno
import re

_LINE_LIMIT = 160
# C0 without tab and line feed, DEL, C1, the marks and overrides of direction, lone surrogates
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AnchorMatrixError(Exception):
    """Base of every error this software raises on purpose.

    ``what`` is one sentence without a full stop; ``where`` names the file, command, key or line; ``expected`` and
    ``todo`` complete it. ``str(error)`` is a single printable line, whatever the outside text contained.
    """

    def __init__(self, what: str, *, where: str = "", expected: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.todo = todo

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.insert(0, self.where)
        line = ": ".join(parts)
        if self.expected:
            line += f"; expected {self.expected}"
        if self.todo:
            line += f"; {self.todo}"
        return shown(" ".join(line.split()))


class InputError(AnchorMatrixError):
    """Something that came from outside (vendor tool, log, CSV, JSON) cannot be read as what it should be."""


class WriteError(AnchorMatrixError):
    """A result cannot be written: the disk is full, or its folder is read-only."""


class SpaceError(WriteError):
    """There is no room: on the disk of a result, or on a host's. It says nothing of what was measured."""


class ConfigError(AnchorMatrixError):
    """The configuration is wrong: key path, what was given, what is allowed."""


class HostError(AnchorMatrixError):
    """A host cannot be reached, or a command on it cannot be run, timed out or failed."""


class ContractError(AnchorMatrixError):
    """The live state of the host no longer matches the contract that a job was started for."""


class BusyError(ContractError):
    """Somebody else is on the cards and did not leave for as long as the configuration waits."""


class LeaseError(AnchorMatrixError):
    """The cards of a group cannot be leased: another session of this software holds one of them."""


class EngineError(AnchorMatrixError):
    """A serving engine did not start, died, or refused a form; carries the evidence as its message."""


class NightError(AnchorMatrixError):
    """A session of a nightly sweep may not start: it could not finish before the deadline."""


def shown(text: str) -> str:
    """Outside text as it may reach a terminal or a page: what is not printable is escaped (``\\x1b``, ``\\n``)."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def shown_lines(text: str) -> str:
    """Text of many lines as it may reach a terminal: controls and what turns the direction of writing are escaped.

    What is text inside JSON stays valid there: only there unescaped controls beyond ASCII may occur, as ``\\u009b``.
    """
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}" if found[0] < " " else f"\\u{ord(found[0]):04x}", text)


def cannot_write(error: OSError, where: object) -> WriteError:
    """What kept a file from being written: no room, or something that room would not cure."""
    full = error.errno in _FULL
    return (SpaceError if full else WriteError)(
        f"cannot be written ({error.strerror or error})",
        where=str(where),
        todo="make room there" if full else "see the permissions and the disk",
    )


def quoted_line(line: str) -> str:
    """Return an offending line as it may be shown in an error: printable, on one line, at most 160 characters."""
    printable = "".join(char if char.isprintable() else " " for char in line[: 4 * _LINE_LIMIT].strip()).strip()
    clipped = printable if len(printable) <= _LINE_LIMIT else printable[: _LINE_LIMIT - 1] + "…"
    return f"«{clipped}»"
