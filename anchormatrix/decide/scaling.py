"""Scaling between card counts: a statement of its own, because more cards also mean another topology."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.records.contract import Contract, changed_facts
from anchormatrix.records.decision import Scaling
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


def scaling(
    small: tuple[Contract, Sequence[FormEvidence]], large: tuple[Contract, Sequence[FormEvidence]]
) -> tuple[Scaling, ...]:
    """Every arm that was measured usably on both contracts; empty when their load or stack differ."""
    (contract_a, forms_a), (contract_b, forms_b) = small, large
    if incomparable(contract_a, contract_b):
        return ()
    return tuple(
        _statement(contract_a, a, contract_b, b)
        for a in _measured(forms_a)
        for b in _measured(forms_b)
        if arm_of(a.form) == arm_of(b.form)
    )


def _measured(forms: Iterable[FormEvidence]) -> list[FormEvidence]:
    return [form for form in forms if form.usable and form.step_anchor_s]


def _statement(contract_a: Contract, a: FormEvidence, contract_b: Contract, b: FormEvidence) -> Scaling:
    speedup, efficiency = gain(a.step_anchor_s or 0.0, contract_a.size, b.step_anchor_s or 1.0, contract_b.size)
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
