"""The gates file: what each form of a contract passes, fails or leaves unknown, and the decision that follows."""

from __future__ import annotations

import enum

import msgspec

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.conclusions.decision import SizeDecision


class GateStatus(enum.StrEnum):
    """A gate fails only on something measured."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Gate(Record, frozen=True):
    """One gate of one form. ``number`` is in ``unit``; ``source`` says which stored result it comes from."""

    name: str
    gate: str
    form: str
    status: GateStatus
    number: float | None
    unit: str
    source: str
    text: str


class CallBound(Record, frozen=True):
    """The least time of one collective per layer, from the sweep; ``time_us`` is ``None`` when that cannot tell.

    ``payload_bytes`` is what one rank hands to one call. ``link_class`` is that of the slowest group of this
    ``dimension``, ``concurrency`` the number of communicators at once on a rank's links; ``basis`` says what the time
    rests on.
    """

    kind: str
    carries: str
    dimension: str
    ranks: int
    calls_per_layer: float
    payload_bytes: float
    link_class: str
    concurrency: int
    time_us: float | None
    basis: str


class FormBytes(Record, frozen=True):
    """Bytes per layer of the rank that sends most across domains, and the least time of all calls."""

    form: str
    same_domain_bytes: float
    cross_domain_bytes: float
    layer_us: float | None
    step_ms: float | None
    forwards_per_step: float
    calls: tuple[CallBound, ...]


class Unexplained(Record, frozen=True):
    """A difference that no measurement explains and that is carried along as such.

    ``isolated_over_implied`` above 1: the isolated measurement is faster than the model gets.
    """

    form: str
    family: str
    communicator: str
    implied_gb_s: float
    isolated_gb_s: float
    concurrency: int
    text: str
    isolated_over_implied: float


class Fix(enum.StrEnum):
    """The one thing a projection changes."""

    EXPOSED_TO_BOUND = "exposed_to_bound"
    BANDWIDTH_ISOLATED = "bandwidth_isolated"
    PAYLOAD_HALVED = "payload_halved"
    PLUMBING_REMOVED = "plumbing_removed"

    @property
    def words(self) -> str:
        """The fix in a sentence."""
        return _FIXES[self]


_FIXES = {
    Fix.EXPOSED_TO_BOUND: "exposed communication at its masking bound",
    Fix.BANDWIDTH_ISOLATED: "in-model bandwidth at the isolated level",
    Fix.PAYLOAD_HALVED: "communication payload halved",
    Fix.PLUMBING_REMOVED: "the form's extra computing removed",
}


class Projection(Record, frozen=True, kw_only=True):
    """If ``fix`` were done for ``form``. ``step_s`` is the projected step, ``measured_s`` the measured one.

    ``threshold`` is the level of the ``quantity`` at which the order against ``against`` reverses, ``None`` when this
    fix alone cannot reverse it; ``level`` is the quantity's measured value. ``reverses``: the projected step is below
    the other side's measured one. ``against_step_s`` is the other side with the same fix and ``both_reverse`` the order
    then; ``None`` where what the fix would do for the other side is not known.
    """

    projection: bool = True
    fix: Fix
    form: str
    against: str
    measured_s: float
    step_s: float
    against_s: float
    quantity: str
    unit: str
    level: float
    projected_level: float
    threshold: float | None
    reverses: bool
    against_step_s: float | None
    both_reverse: bool | None
    text: str

    @property
    def both_words(self) -> str:
        """The order when the same is done for both sides, in a clause."""
        if self.both_reverse is None:
            return f"what it would do for {self.against} is unknown"
        return f"with the same for {self.against} the order {'reverses' if self.both_reverse else 'stays'}"


class EffectStatus(enum.StrEnum):
    """A ``void`` feature was seen not to work; of an ``unproven`` one no evidence is at hand. What speaks against a
    ``doubtful`` one is too weak to call it void."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    DOUBTFUL = "doubtful"
    VOID = "void"


class FeatureEffect(Record, frozen=True):
    """One launch feature, as its form's name says it, and the evidence in words with the counts."""

    feature: str
    status: EffectStatus
    text: str

    @property
    def words(self) -> str:
        """Feature and evidence."""
        return f"{self.feature}: {self.text}"


class Gates(FileRecord, frozen=True):
    """The gates of a contract, as ``gates.json`` holds them: gates form by form, bytes, projections, the decision.

    ``effects`` are the launch features of each measured form that has any.
    """

    contract: str
    size: int
    gates: tuple[Gate, ...]
    bytes: tuple[FormBytes, ...]
    unexplained: tuple[Unexplained, ...]
    projections: tuple[Projection, ...]
    decision: SizeDecision
    effects: dict[str, tuple[FeatureEffect, ...]] = msgspec.field(default_factory=dict)
