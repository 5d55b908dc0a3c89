"""What a rule says of one host, and how that compares with the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from campaigns.truth import Truth

ZONE_PCT = 1.0  # a form that is slower by no more than this is as good as the best
DRIFT_PCT = 5.0
BIG_PCT = 3.0

RIGHT, WRONG, DEAD, DECLINED = "right", "wrong", "dead feature won", "declined"


@dataclass(frozen=True)
class Ruling:
    """What one rule decided. ``starts`` counts server starts, ``card_s`` is virtual seconds × cards.

    ``tied`` are the forms that it says do not differ. The rest only the product has: ``r`` names the forms that a
    few-step ranking was made of, ``planned`` those that its planner let be measured.
    """

    winner: str | None
    starts: int
    card_s: float
    tied: tuple[str, ...] = ()
    confidence: str = ""
    extrapolates: bool = False
    r: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    text: str = ""


def judged(ruling: Ruling, truth: Truth) -> str:
    """Right, wrong, won by a dead feature, or declined.

    A named form is right when it is the best at full step count or slower by no more than the indifference zone. "No
    difference" is right when that holds for every form it names, else nothing was decided.
    """
    if ruling.winner in truth.dead:
        return DEAD
    if ruling.winner is not None:
        return RIGHT if truth.loss_pct(ruling.winner) <= ZONE_PCT else WRONG
    if len(ruling.tied) > 1 and all(truth.loss_pct(form) <= ZONE_PCT for form in ruling.tied):
        return RIGHT
    return DECLINED


def false_extrapolates(ruling: Ruling, truth: Truth, noise_pct: float) -> bool:
    """Whether ``extrapolates`` was said although choosing at few steps would truly have been a mistake.

    That is: the form fastest at few steps is beyond the zone slower at full step count, unless few steps cannot tell it
    from the best; or a step truly drifts between the tiers by more than the limit.
    """
    ranked = [form for form in ruling.r if form in truth.few_s]
    if not ruling.extrapolates or not ranked:
        return False
    chosen, best = min(ranked, key=truth.few_s.__getitem__), min(ranked, key=truth.full_s.__getitem__)
    apart = 100 * (truth.few_s[best] / truth.few_s[chosen] - 1)
    if truth.loss_pct(chosen) > ZONE_PCT and apart > max(ZONE_PCT, noise_pct):
        return True
    return max(abs(truth.anchor_s[form] / truth.few_s[form] - 1) * 100 for form in ranked) > DRIFT_PCT


@dataclass(frozen=True)
class Theory:
    """How many gates failed and how many projections could be tried on a host, and those of them that were false."""

    failures: int
    false_failures: tuple[str, ...]
    projections: int
    contradicted: tuple[str, ...]


@dataclass(frozen=True)
class HostResult:
    """One host under every rule; rulings and what they are worth go by the rule's name.

    ``choice``: at least two forms can be had. ``losses``: how much slower the form named is than the best, in percent,
    at full step count and at the anchor. ``theory`` is there for the product on hosts with captures.
    """

    number: int
    forms: int
    choice: bool
    margin_pct: float
    restart_sd_pct: float
    request_sd_pct: float
    hardnesses: tuple[str, ...]
    best: str
    rulings: Mapping[str, Ruling]
    judgements: Mapping[str, str]
    false_extrapolates: Mapping[str, bool]
    theory: Mapping[str, Theory] = field(default_factory=dict)
    losses: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def left_out(self, rule: str) -> bool:
        """Whether the product's planner did not let the best form be measured."""
        return bool(self.best) and self.best not in self.rulings[rule].planned

    def card_time(self, rule: str) -> float:
        """Starts ÷ (2 × forms): 1 is every form in two windows."""
        return self.rulings[rule].starts / (2 * self.forms)
