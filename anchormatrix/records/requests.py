"""The request table: one row for each request of a session, as it was sent and as the server timed it."""

from __future__ import annotations

import enum

from anchormatrix.records.base import Positive, Record


class RequestStatus(enum.StrEnum):
    """``ok``; ``lost`` (no answer, timing whole); ``untimed`` (no whole timing); ``error`` (refused)."""

    OK = "ok"
    LOST = "lost"
    UNTIMED = "untimed"
    ERROR = "error"


class Role(enum.StrEnum):
    """What a request is for. Only ``measured`` ones are timed for a cell."""

    RAMP = "ramp"
    MEASURED = "measured"
    CAPTURE = "capture"
    SMOKE = "smoke"


class RequestRow(Record, frozen=True, kw_only=True):
    """One row of ``requests.csv``; times are in seconds, ``None`` where the log says nothing.

    ``sent_s`` counts from the start of the session. ``denominator`` says where ``iterations`` come from; a row with a
    step time has both.
    """

    request: int
    role: Role
    tier: str = ""
    steps: int
    iterations: int | None = None
    denominator: str | None = None
    step_s: Positive | None = None
    diffuse_s: float | None = None
    encode_s: float | None = None
    decode_s: float | None = None
    forward_s: float | None = None
    ranks: int
    rank_spread_s: float | None = None
    status: RequestStatus
    latency_s: float
    sent_s: float
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if self.step_s is not None and (self.iterations is None or self.denominator is None):
            raise ValueError("a step time without its iterations")
