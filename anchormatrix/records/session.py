"""The session file: one form served once in one window, and everything needed to believe its numbers."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from anchormatrix.errors import quoted_line
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.settings.values import Tier

Window = Annotated[int, msgspec.Meta(ge=1)]


class SessionStatus(enum.StrEnum):
    """How a session ended. Only ``measured`` ones have numbers that may be compared."""

    MEASURED = "measured"
    DID_NOT_RUN = "did_not_run"
    VOID = "void"
    CONTAMINATED = "contaminated"
    UNMEASURABLE = "unmeasurable"
    SKIPPED = "skipped"


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
    ``reason`` what is wrong. ``directory`` is where its ``files`` were put, ``size_mb`` their size (10⁶ bytes). That of
    the anchor ``tier`` holds the last steps of an anchor request, the other the first of a short one. ``ranks`` is how
    many ranks the engine's profiler writes, from 0 (``None``: all).
    """

    status: CaptureStatus
    request: int | None = None
    why: str = ""
    reason: str = ""
    directory: str | None = None
    files: int = 0
    size_mb: float = 0.0
    tier: Tier = Tier.FEW
    ranks: int | None = None


class CaptureFile(FileRecord, Capture, frozen=True, kw_only=True):
    """A capture as ``capture.json`` beside the profiler's files holds it; ``made`` is when, as ``20261130T230000``."""

    made: str


class Check(Record, frozen=True):
    """What the engine found of its own result before it served: the worst of ``ranks`` ranks that said so.

    ``relative_distance`` is that of the form's result to the unsplit one (``None``: no finite number), ``limit`` the
    engine's own tolerance.
    """

    ok: bool
    what: str
    relative_distance: float | None
    limit: float
    ranks: int

    @property
    def words(self) -> str:
        """The check as a failure."""
        distance = "no finite number" if self.relative_distance is None else f"{self.relative_distance:.2e}"
        return f"the engine's own check fails ({self.what}): relative distance {distance}, limit {self.limit:.2e}"


class OffloadSeen(Record, frozen=True):
    """What workers logged of offload: its ``kind`` as a form names it (empty: none enabled), and on how many ranks.

    ``blocks`` is the fewest transformer blocks that a rank hooked (0: not told), ``group`` over how many ranks one copy
    of the weights is shared, ``refusal`` the line that says why nothing is offloaded.
    """

    kind: str
    ranks: int
    blocks: int
    group: int
    refusal: str


class SparseSeen(Record, frozen=True):
    """How many ranks logged a sparse attention call, and how many a call that stayed dense."""

    active: int
    dense: int


class Proof(Record, frozen=True):
    """Ranks and group sizes asked for and seen. ``unproven`` are sizes above 1 that this engine's log does not tell.

    ``check`` is the engine's check of its own result, when it logs one; ``offload`` and ``sparse`` what it logs of
    these features. ``peak_memory_mb`` is the most device memory that the engine's answers told of, in units of 2²⁰
    bytes, of its first rank.
    """

    ok: bool
    ranks_expected: int
    ranks_seen: int
    groups_expected: dict[str, int]
    groups_seen: dict[str, int | str]
    failures: tuple[str, ...]
    unproven: tuple[str, ...]
    check: Check | None = None
    offload: OffloadSeen | None = None
    sparse: SparseSeen | None = None
    peak_memory_mb: float | None = None


class Ramp(Record, frozen=True):
    """Whether the steady state was reached before the repeats, and still held in them.

    ``requests`` were sent before the repeats; ``first_steady`` counts them from 1.
    """

    requests: int
    first_steady: int | None
    steady: bool
    why: str


class LogCounts(Record, frozen=True):
    """What the server's log held. ``denominators`` counts requests by where their iterations come from.

    ``closure_pct`` is the largest difference of forward from the sum of its stages, in percent.
    """

    lines: int
    unusable_lines: int
    stage_lines: int
    lost_responses: int
    denominators: dict[str, int]
    closure_pct: float | None


class Answer(Record, frozen=True):
    """The answer kept beside the session in ``output.bin``: of which request, from 1, and its media type."""

    request: int
    media: str


class Remark(Record, frozen=True):
    """What a reader must know of a measured session beside its numbers."""

    kind: str
    text: str


class Stop(Record, frozen=True, omit_defaults=True):
    """How a server ended; without any key when none was started. ``exit_code`` is ``None`` when it is not known."""

    how: str = ""
    seconds: float | None = None
    exit_code: int | msgspec.UnsetType | None = msgspec.UNSET
    survivors: int | None = None


class Failure(Record, frozen=True, omit_defaults=True):
    """Why a server is gone: ``id`` and words of the catalogue of failures, and the ``line`` of the log that says so.

    ``unknown`` has neither check nor cure; its ``line`` is the first error, empty when none was logged.
    """

    id: str
    cause: str
    line: str = ""
    check: str = ""
    cure: str = ""
    source: str = ""

    @property
    def words(self) -> str:
        """Cause and line as the end of a sentence."""
        cause = self.cause if self.check else f"cause {self.cause}"
        return f"{cause} {quoted_line(self.line)}" if self.line else cause

    @property
    def advice(self) -> str:
        """What to check and what helps; empty when the cause is not known."""
        return f"Check: {self.check}. Cure: {self.cure}." if self.check else ""


class SeenProcess(Record, frozen=True):
    """A process on a card."""

    pid: int
    name: str
    memory_mb: int | None


class SeenCard(Record, frozen=True):
    """A card as the vendor's tool described it."""

    id: int
    health: str
    hbm_used_mb: int | None
    temperature_c: float | None
    power_w: float | None
    processes: tuple[SeenProcess, ...]


class SeenCards(Record, frozen=True):
    """The cards of a contract at one moment."""

    cards: tuple[SeenCard, ...]


class Circumstances(Record, frozen=True):
    """What was true round a session. ``load`` is the host's average over one minute, ``versions`` are by name."""

    before: SeenCards
    after: SeenCards
    load: float | None
    versions: dict[str, str]


class Try(Record, frozen=True):
    """One attempt at a session; the last one is the session itself."""

    status: SessionStatus
    reason: str
    started_at: str


class Session(FileRecord, frozen=True, kw_only=True, omit_defaults=True):
    """One session of one form in one window, as ``session.json`` holds it.

    What is ``None`` does not exist: a skipped session has neither times nor a log, a form that the engine refuses was
    never started. ``failure`` is why its server is gone, ``evidence`` the first errors of its ranks and the log's last
    lines. ``stopped_early`` says why the adaptive design ended it; ``generation`` how often it had been asked
    for again; ``output`` the answer that was kept to be compared; ``night`` names the sweep it belongs to, or is empty.
    """

    contract: str
    form: str
    window: Window
    status: SessionStatus
    reason: str
    evidence: tuple[str, ...]
    failure: Failure | None = None
    command: tuple[str, ...]
    env: dict[str, str]
    started_at: str | None = None
    finished_at: str | None = None
    duration_s: float | None = None
    proof: Proof | None = None
    ramp: Ramp | None = None
    log: LogCounts | None = None
    findings: tuple[Remark, ...] | None = None
    capture: Capture | None = None
    output: Answer | None = None
    stop: Stop | None = None
    circumstances: Circumstances | None = None
    tries: tuple[Try, ...]
    generation: int
    night: str

    @property
    def steady(self) -> bool:
        """Whether the ramp had settled before the repeats."""
        return self.ramp is not None and self.ramp.steady
