"""The capture of a session: the profiler's files of one step, where they lie and what is wrong with them."""

from __future__ import annotations

import enum

from anchormatrix.records.base import FileRecord, Record


class CaptureStatus(enum.StrEnum):
    """What became of a capture. One on the ramp gives seconds but no share of the step that was timed."""

    CAPTURED = "captured"
    FAILED = "failed"
    EMPTY = "empty"
    ON_RAMP = "on_ramp"
    OFF = "off"


USABLE = (CaptureStatus.CAPTURED, CaptureStatus.ON_RAMP)


class Capture(Record, frozen=True):
    """A session's capture.

    ``request`` is the number, from 1, of the request it lies in; ``why`` says why the server is steady there,
    ``reason`` what is wrong. ``directory`` is where its ``files`` were put, ``size_mb`` their size (10⁶ bytes).
    """

    status: CaptureStatus
    request: int | None = None
    why: str = ""
    reason: str = ""
    directory: str | None = None
    files: int = 0
    size_mb: float = 0.0


class CaptureFile(FileRecord, Capture, frozen=True, kw_only=True):
    """A capture as ``capture.json`` beside the profiler's files holds it; ``made`` is when, as ``20261130T230000``."""

    made: str
