"""The decision file and the ledger of decisions: which form wins at every card count, and what that rests on."""

from __future__ import annotations

import enum
from typing import Any

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.conclusions.verdict import VerdictStatus


class DecisionOutcome(enum.StrEnum):
    """What can be said of one card count."""

    WINNER = "winner"
    NO_DIFFERENCE = "no_difference"
    NOT_DECIDABLE = "not_decidable"


class Confidence(enum.StrEnum):
    """How far a decision can be trusted."""

    HIGH = "high"
    MODERATE = "moderate"
    LOW = "low"
    NONE = "none"


class SizeDecision(Record, frozen=True):
    """The decision of one card count. ``winner`` is ``None`` when there is no difference or nothing can be decided.

    ``tied_with`` are forms within the noise floor of the fastest. ``margin_pct`` is runner-up ÷ winner − 1 at the
    anchor tier, in percent; the true margin lies between ``margin_low_pct`` and ``margin_high_pct``, with the chance of
    error that the verdict's selection states.
    """

    size: int
    contract: str
    outcome: DecisionOutcome
    winner: str | None
    runner_up: str | None
    margin_pct: float | None
    margin_low_pct: float | None
    margin_high_pct: float | None
    tied_with: tuple[str, ...]
    basis: str
    sentence: str
    conditions: tuple[str, ...]
    unknowns: tuple[str, ...]
    reversal: tuple[str, ...]
    confidence: Confidence


class Trigger(Record, frozen=True):
    """One reason to verify a decision again: whether it fired, and with which numbers.

    ``evaluated`` is false when there was nothing to test it on; it has then neither fired nor been quiet.
    """

    size: int
    trigger: str
    fired: bool
    text: str
    evaluated: bool = True


class Scaling(Record, frozen=True):
    """Speed-up of one arm from one card count to another. ``efficiency`` = speed-up ÷ card ratio."""

    text: str
    arm: str
    form_from: str
    form_to: str
    cards_from: int
    cards_to: int
    speedup: float
    efficiency: float
    exposed_share_from: float | None
    exposed_share_to: float | None
    links_from: str
    links_to: str

    @property
    def words(self) -> str:
        """The statement in a clause, with what makes it comparable and what does not."""
        links = self.links_to if self.links_from == self.links_to else f"{self.links_from}, then {self.links_to}"
        return (
            f"{self.speedup:.2f} times as fast as {self.form_from} on {self.cards_from} cards, efficiency "
            f"{100 * self.efficiency:.0f} % (same arm {self.arm} and load; other cards, links {links})"
        )


class SizeNote(Record, frozen=True):
    """A sentence about one card count."""

    size: int
    text: str


class ExcludedForm(Record, frozen=True):
    """A form that is no candidate, and why."""

    size: int
    form: str
    text: str


class Decision(FileRecord, frozen=True):
    """The decision of a run, as ``decision.json`` holds it: every card count, and on top the largest one decided.

    ``scaling`` compares card counts, ``skipped`` names what the adaptive design left out, ``pairs`` what each size's
    comparison rests on.
    """

    sizes: dict[str, SizeDecision]
    size: int | None
    winner: str | None
    runner_up: str | None
    margin_pct: float | None
    margin_low_pct: float | None
    margin_high_pct: float | None
    basis: str
    conditions: tuple[str, ...]
    unknowns: tuple[str, ...]
    reversal: tuple[str, ...]
    confidence: Confidence
    sentence: str | None
    reverify_triggers: tuple[Trigger, ...]
    scaling: tuple[Scaling, ...]
    skipped: tuple[SizeNote, ...]
    excluded: tuple[ExcludedForm, ...]
    pairs: tuple[SizeNote, ...]


class BasisForm(Record, frozen=True):
    """What was known of one form: step times in seconds by tier, exposed communication per step.

    ``doubt`` says why its steps may not be read, ``capture_doubt`` why its capture may not; the share is then ``None``.
    ``exposed_share_anchor`` is that of a late step of an anchor request, where one was captured.
    """

    form: str
    few_s: float | None
    anchor_s: float | None
    exposed_ms: float | None
    exposed_share: float | None
    doubt: str = ""
    capture_doubt: str = ""
    exposed_share_anchor: float | None = None

    @property
    def drift(self) -> float | None:
        """Anchor step ÷ few-step step, where both may be read."""
        return self.anchor_s / self.few_s if self.anchor_s and self.few_s and not self.doubt else None


class Basis(Record, frozen=True):
    """What a decision rested on, as one line of ``decisions.jsonl``: nothing that changes between equal runs.

    ``status`` is the verdict's. ``facts`` are what shapes a step in the configuration, by dotted key;
    ``fixed_s`` the seconds outside the DiT stage of one request by stage; ``possible`` the names of all candidates.
    """

    size: int
    contract: str
    winner: str | None
    status: VerdictStatus | None
    forms: tuple[BasisForm, ...]
    facts: dict[str, Any]
    fixed_s: dict[str, float]
    possible: tuple[str, ...]
