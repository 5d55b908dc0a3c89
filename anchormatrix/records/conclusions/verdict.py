"""The verdict file: may the few-step ranking of a contract be used, and which form wins on the anchor tier."""

from __future__ import annotations

import enum

from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.conclusions.selection import Selection
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.records.settings.values import ANCHOR


class VerdictStatus(enum.StrEnum):
    """How the two tiers agree, or why nothing can be said."""

    EXTRAPOLATES = "extrapolates"
    DRIFT = "drift"
    ORDER_FLIP = "order_flip"
    INCOMPLETE = "incomplete"
    UNSTABLE = "unstable"


class Drift(Record, frozen=True):
    """The same cell in two windows: ``drift_pct`` = last ÷ first − 1, in percent."""

    form: str
    tier: str
    drift_pct: float
    exceeds: bool


class NotRun(Record, frozen=True):
    """A form without a single measured session although at least one was tried."""

    form: str
    reason: str


class Verdict(FileRecord, frozen=True):
    """The verdict of one contract, as ``verdict.json`` holds it.

    ``r`` maps a form to step(anchor) ÷ step(few); ``order_few`` and ``order_anchor`` list groups of tied forms, fastest
    first; ``ties`` are pairs with their noise floor in percent. ``selection`` says how far server starts tell the
    fastest form, ``margin_pct`` is its nearest rival's difference there; ``windows_agree`` says whether it was faster
    than that one in every window. ``conclusion_stands`` is ``None`` while no window drifts. ``left_out``
    says of each form outside the ranking that its repeats do not rule out what they show.
    """

    contract: str
    size: int
    status: VerdictStatus
    reason: str
    r: dict[str, float]
    order_few: tuple[tuple[str, ...], ...]
    order_anchor: tuple[tuple[str, ...], ...]
    ties: tuple[tuple[str, str, float], ...]
    winner: str | None
    tied_with: tuple[str, ...]
    margin_pct: float | None
    window_drift: tuple[Drift, ...]
    conclusion_stands: bool | None
    did_not_run: tuple[NotRun, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    cure: str
    limits: VerdictSettings
    selection: Selection
    windows_agree: bool
    winner_tier: str = ANCHOR
