"""The request table: one row for each request of a session, as it was sent and as the server timed it."""

from __future__ import annotations

import enum
from typing import ClassVar

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


class Basis(enum.StrEnum):
    """What a request's denoise time is: timed as such, what of the whole is in no other stage, or a clock's reading."""

    DIFFUSE = "diffuse stage"
    REMAINDER = "forward less its other stages"
    BAR = "clock of the progress bar"
    STEPS = "each step"


class Witness(enum.StrEnum):
    """Who told a request's times: every rank's log lines, the answer (one rank's word), or both, which agree."""

    LOG = "log"
    ANSWER = "answer"
    BOTH = "log and answer"


class RequestRow(Record, frozen=True, kw_only=True):
    """One row of ``requests.csv``; times are in seconds, ``None`` where the log says nothing.

    ``sent_s`` counts from the start of the session. ``denominator`` says where ``iterations`` come from; a row with a
    step time has both. ``basis`` says what was timed and ``witness`` who told it. ``steps_s`` are the single steps,
    where the engine tells them.
    """

    added: ClassVar[tuple[str, ...]] = ("basis", "witness", "steps_s")

    request: int
    role: Role
    tier: str = ""
    steps: int
    iterations: int | None = None
    denominator: str | None = None
    basis: Basis | None = None
    witness: Witness | None = None
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
    steps_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.step_s is not None and (self.iterations is None or self.denominator is None):
            raise ValueError("a step time without its iterations")
