"""The smoke file: what one short request on the real cards of a contract says of their health."""

from __future__ import annotations

import enum

import msgspec

from anchormatrix.records.base import FileRecord, Positive, Record
from anchormatrix.records.session import Failure, Stop


class SmokeStatus(enum.StrEnum):
    """Nothing is measured on a ``rejected`` group; an ``unverified`` one had nothing to be compared with."""

    PASSED = "passed"
    REJECTED = "rejected"
    UNVERIFIED = "unverified"


class FindingKind(enum.StrEnum):
    """What a smoke can show."""

    STRAGGLER = "straggler"
    SLOW_FIRST_STEP = "slow_first_step"
    THERMAL_SLOPE = "thermal_slope"
    RESIDUE = "residue"
    TOO_SLOW = "too_slow"
    REFERENCE_SLOW = "reference_slow"
    NO_TIMING = "no_timing"
    WARNING_CONFIRMED = "warning_confirmed"
    DID_NOT_RUN = "did_not_run"
    BROKEN_OUTPUT = "broken_output"
    BUSY = "busy"
    UNVERIFIED = "unverified"


class Finding(Record, frozen=True):
    """Something the smoke showed: ``value`` against ``limit``, both as ``text`` names them."""

    kind: FindingKind
    text: str
    value: float | None = None
    limit: float | None = None


class RankSteps(Record, frozen=True):
    """Times of one rank in seconds. ``step_s`` are its single steps, empty when the log does not tell them."""

    rank: int
    diffuse_s: float
    step_s: tuple[float, ...]


class Reference(Record, frozen=True):
    """Another group of the same size and links that was smoked for comparison, and its step time in seconds."""

    contract: str
    cards: tuple[int, ...]
    step_s: float


class Smoke(FileRecord, frozen=True, kw_only=True, omit_defaults=True):
    """The smoke of a contract's cards, as ``smoke.json`` holds it. Times are in seconds.

    ``tried`` are the forms that were served until one ran, ``failure`` is why the last one's server is gone,
    ``reference`` the group it was compared with when nothing else told how fast it should be (``None``: there was
    none). A group that was occupied has none of these keys.
    ``state`` is the health and occupancy of the cards it was made in, as one word; ``generation`` how often it had been
    asked for again; ``night`` names the sweep it belongs to, or is empty.
    """

    contract: str
    status: SmokeStatus
    findings: tuple[Finding, ...]
    step_s: Positive | None
    expected_s: float | None
    expected_source: str | None
    ranks: tuple[RankSteps, ...]
    form: str
    command: tuple[str, ...]
    started_at: str
    evidence: tuple[str, ...]
    failure: Failure | None = None
    tried: tuple[str, ...] = ()
    stop: Stop | None = None
    reference: Reference | msgspec.UnsetType | None = msgspec.UNSET
    state: str
    generation: int
    night: str


class Suspicion(FileRecord, frozen=True):
    """Why cards must pass a smoke before anything runs on them, as ``suspect.json`` of a contract holds it.

    ``cards`` are those not cleared since, ``when`` is UTC in ISO 8601.
    """

    contract: str
    cards: tuple[int, ...]
    what: str
    when: str
