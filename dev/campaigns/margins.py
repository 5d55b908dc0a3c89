"""The true margin of a drawn host: forms are scaled so that best and second are as far apart as was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from campaigns.hardness import Hardness
from campaigns.truth import dead_forms, full_step, taken_away
from virtualhost.host.faults import Fault
from virtualhost.host.model import StepRule
from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split
from virtualhost.truth.forms import variants

_DEAD_PCT = (-6.0, 2.0)  # how much slower than the best a form with a dead feature is


def dead_feature(rng: Random, scenario: Scenario, forms: Sequence[Split]) -> tuple[Fault, tuple[Split, ...]] | None:
    """A form whose masking or offload silently does nothing, and the forms with it among them."""
    gone = taken_away(scenario)
    masked = [form for form in forms if form.mask_chunks > 1 and form.name not in gone]
    plain = [form for form in forms if not form.offload and form.mask_chunks == 1]
    kind = rng.choice(("dead_masking", "dead_offload"))
    if kind == "dead_masking" and masked:
        return Fault(kind, form=rng.choice(masked).name), tuple(forms)
    if not plain:
        return None
    base = rng.choice(plain)
    form = replace(base, offload=rng.choice([other.offload for other in variants(base)[1:]]))
    kept = [other for other in forms if other != base or len(forms) < 8]
    return Fault("dead_offload", form=form.name, logged=rng.random() < 0.5), (*kept, form)


def with_margin(
    rng: Random, hard: Hardness, scenario: Scenario, forms: Sequence[Split], cards: tuple[int, ...], full_steps: int
) -> Scenario:
    """The host with a factor for each form, so that second ÷ best − 1 at full step count is the margin drawn.

    The other forms keep their distance to the second, or are spread over 15 % above it where ``reference_gaps`` asks.
    A form with a dead feature lies anywhere from 6 % below the best to 2 % above. Forms that cannot be had stay as
    they are. Offloaded variants of a form take its factor.
    """
    margin, spread = 1 + rng.uniform(*hard.margin) / 100, rng.uniform
    had = [form for form in forms if form.name not in taken_away(scenario)]
    if not had:
        return scenario
    natural = {form: full_step(scenario, form, cards, full_steps) for form in forms}
    ranked = rng.sample(had, len(had)) if hard.reference_gaps else sorted(had, key=lambda form: natural[form])
    best, second = natural[ranked[0]], natural[ranked[min(1, len(ranked) - 1)]]
    wanted = {ranked[0]: best}
    for place, form in enumerate(ranked[1:], start=1):
        above = spread(0.0, 0.15) if place > 1 else 0.0
        wanted[form] = best * (margin + above if hard.reference_gaps else margin * natural[form] / second)
    wanted |= {form: best * (1 + spread(*_DEAD_PCT) / 100) for form in forms if form.name in dead_forms(scenario)}
    rules = tuple(_rule(form, seconds / natural[form], forms) for form, seconds in wanted.items())
    behaviour = replace(scenario.behaviour, step_rules=(*scenario.behaviour.step_rules, *rules))
    return replace(scenario, behaviour=behaviour)


def _rule(form: Split, factor: float, forms: Sequence[Split]) -> StepRule:
    """The factor of a form and of those offloaded variants that are no forms of their own here."""
    others = {other.name for other in forms} - {form.name}
    return StepRule(factor, forms=tuple(variant.name for variant in variants(form) if variant.name not in others))
