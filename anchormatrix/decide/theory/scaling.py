"""Scaling between card counts: a statement of its own, because more cards also mean another topology."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.records.conclusions.decision import Scaling
from anchormatrix.records.contract import Contract, changed_facts
from anchormatrix.records.form import Form

# What belongs to the group itself and so differs between sizes; anything else that differs forbids the statement.
_GROUP_FIELDS = ("cards", "links", "one_domain")


def arm_of(form: Form) -> tuple[Any, ...]:
    """What stays the same along a scaling arm: every degree but the Ulysses one, and the features."""
    return (form.tp, form.ring, form.ag, form.cfg, form.pp, form.offload, form.mask_chunks)


def arm_name(form: Form) -> str:
    """The arm in words: ``tp1-uspN``, ``tp2-uspN+mask4``."""
    return form.name.replace(f"usp{form.usp}", "uspN", 1)


def incomparable(a: Contract, b: Contract) -> str | None:
    """Why two contracts cannot be put in one scaling statement (another load, host or stack), or None."""
    fields = [change.field for change in changed_facts(a, b)]
    other = [field for field in fields if not field.startswith(_GROUP_FIELDS)]
    return f"{', '.join(other)} differ" if other else None


def gain(step_from_s: float, cards_from: int, step_to_s: float, cards_to: int) -> tuple[float, float]:
    """Speed-up and efficiency of a step on more cards; efficiency = speed-up ÷ card ratio."""
    speedup = step_from_s / step_to_s
    return speedup, speedup / (cards_to / cards_from)


@dataclass(frozen=True)
class Measured:
    """A contract and what was measured of its forms."""

    contract: Contract
    forms: Sequence[FormEvidence]


def scaling(small: Measured, large: Measured) -> tuple[Scaling, ...]:
    """Every arm that was measured usably on both contracts; empty when their load or stack differ."""
    if incomparable(small.contract, large.contract):
        return ()
    return tuple(
        _statement(small.contract, a, large.contract, b)
        for a in _measured(small.forms)
        for b in _measured(large.forms)
        if arm_of(a.form) == arm_of(b.form)
    )


def scaling_words(large: Measured, smaller: Iterable[Measured]) -> dict[str, str]:
    """How each form of a contract scales from fewer cards, in a clause, or why that cannot be said; nothing of an arm
    that has no form there."""
    told: dict[str, list[str]] = {}
    for small in smaller:
        found = {item.form_to: item.words for item in scaling(small, large)}
        why = incomparable(small.contract, large.contract)
        for form, other in product(_measured(large.forms), small.forms):
            if arm_of(form.form) == arm_of(other.form):
                doubt = f"not comparable: {why}" if why else other.rank_doubt
                words = f"{other.form.name} on {small.contract.size} cards {doubt}"
                told.setdefault(form.form.name, []).append(found.get(form.form.name, words))
    return {name: "; ".join(words) for name, words in told.items()}


def _measured(forms: Iterable[FormEvidence]) -> list[FormEvidence]:
    return [form for form in forms if form.ranked_s]


def _statement(contract_a: Contract, a: FormEvidence, contract_b: Contract, b: FormEvidence) -> Scaling:
    speedup, efficiency = gain(a.ranked_s or 0.0, contract_a.size, b.ranked_s or 1.0, contract_b.size)
    text = (
        f"{arm_name(a.form)} from {contract_a.size} to {contract_b.size} cards: {speedup:.2f} times faster, "
        f"efficiency {100 * efficiency:.0f} %. "
    )
    if a.exposed_share is not None and b.exposed_share is not None:
        text += f"Exposed communication: {100 * a.exposed_share:.1f} % of the step, then {100 * b.exposed_share:.1f} %"
        text += ", the first suspect. " if efficiency < 0.9 and b.exposed_share > a.exposed_share else ". "
    elif efficiency < 0.9:
        text += "Whether exposed communication causes the loss is unknown without a capture of both. "
    if contract_a.link_class != contract_b.link_class:
        text += f"The topology changes too: links {contract_a.link_class} against {contract_b.link_class}."
    else:
        text += f"Both groups are joined by {contract_a.link_class}, but they are different groups."
    return Scaling(
        text=text,
        arm=arm_name(a.form),
        form_from=a.form.name,
        form_to=b.form.name,
        cards_from=contract_a.size,
        cards_to=contract_b.size,
        speedup=speedup,
        efficiency=efficiency,
        exposed_share_from=a.exposed_share,
        exposed_share_to=b.exposed_share,
        links_from=contract_a.link_class,
        links_to=contract_b.link_class,
    )
