"""The conclusion: which form wins under which condition, by how much, what is unknown, and where it reverses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from anchormatrix.decide.effects.features import doubtful, feature_doubts, features_apart, unproven
from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.decide.fastest import interval, why_open, won_by
from anchormatrix.decide.gates import GATES, UNKNOWN
from anchormatrix.decide.group_state import UNKNOWN_GROUP, GroupState
from anchormatrix.decide.theory.projection import milliseconds, seconds
from anchormatrix.outputs.said import not_compared, products
from anchormatrix.records.conclusions.decision import (
    Confidence,
    DecisionOutcome,
    SizeDecision,
)
from anchormatrix.records.conclusions.gates import Gate, Projection, Unexplained
from anchormatrix.records.conclusions.verdict import Verdict, VerdictStatus
from anchormatrix.records.form import parse_form
from anchormatrix.records.outputs import SessionOutput
from anchormatrix.records.settings.things import ModelSettings


@dataclass(frozen=True)
class DecisionInputs:
    """What one size is concluded from. ``left_behind`` are forms measured and taken out of the matrix since."""

    size: int
    contract: str
    verdict: Verdict
    evidence: Sequence[FormEvidence]
    model: ModelSettings | None = None
    gates: Sequence[Gate] = ()
    projections: Sequence[Projection] = ()
    unexplained: Sequence[Unexplained] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    left_behind: Sequence[FormEvidence] = ()
    group: GroupState = UNKNOWN_GROUP
    outputs: Sequence[SessionOutput] = ()


_BASIS = {
    VerdictStatus.EXTRAPOLATES: "the few-step ranking agrees and may be used next time",
    VerdictStatus.DRIFT: "the step drifts between the tiers, so only the anchor counts",
    VerdictStatus.ORDER_FLIP: "the few-step tier ranks the forms differently, so the anchor's order holds",
    VerdictStatus.UNSTABLE: "dispersion is above the limit",
    VerdictStatus.INCOMPLETE: "the matrix is incomplete",
}
_DOUBTFUL = (VerdictStatus.UNSTABLE, VerdictStatus.INCOMPLETE)
_MORE_STARTS = "start the forms that are still open more often, as matrix.design adaptive does by itself"
_WITHOUT_IT = "measure the same form without the feature beside it"
_RESET = "reset the driver or use another group, then smoke it again"


def decide(inputs: DecisionInputs) -> SizeDecision:
    """Fill the template for one size: "When … X wins, else Y; measured …, so Y by …; unknown …; reverses at …".

    The winner is the verdict's, which rests on the anchor tier; this adds what it depends on. Damaged cards decide
    nothing.
    """
    if inputs.group.damage:
        return _without_winner(replace(inputs, verdict=_damaged(inputs)), ())
    verdict = inputs.verdict
    winner = verdict.winner
    tied = tuple(name for name in verdict.tied_with if name != winner)
    if winner is None or _seems_dead(inputs):
        return _without_winner(inputs, tied if winner is None else ())
    nearest = verdict.selection.rivals[0]
    runner = nearest.form
    reversal = tuple(item.text for item in inputs.projections if item.against == winner and item.threshold is not None)
    unknowns = _unknowns(inputs)
    conditions = (*_outside(inputs), *products(inputs.outputs), *_conditions(inputs, winner, runner), *_links(inputs))
    apart = features_apart(parse_form(winner), parse_form(runner))
    sentence = f"On {inputs.size} cards {winner} {won_by(verdict.selection)} at the anchor tier{apart}"
    sentence += f"; {conditions[0][0].lower() + conditions[0][1:]}" if conditions else "."
    sentence += f" Unknown: {unknowns[0]}" if unknowns else ""
    sentence += _reverses(inputs, winner)
    return SizeDecision(
        size=inputs.size,
        contract=inputs.contract,
        outcome=DecisionOutcome.WINNER,
        winner=winner,
        runner_up=runner,
        margin_pct=nearest.behind_pct,
        margin_low_pct=nearest.low_pct,
        margin_high_pct=nearest.high_pct,
        tied_with=tied,
        basis=_basis(inputs),
        sentence=sentence,
        conditions=conditions,
        unknowns=unknowns,
        reversal=reversal,
        confidence=_confidence(inputs),
    )


def _without_winner(inputs: DecisionInputs, tied: tuple[str, ...]) -> SizeDecision:
    verdict = inputs.verdict
    if len(tied) > 1:
        outcome = DecisionOutcome.NO_DIFFERENCE
        sentence = (
            f"On {inputs.size} cards there is no difference between {listed(tied)}: "
            f"{interval(verdict.selection.ties[-1])} apart, below the {verdict.selection.zone_pct:g} % "
            "that counts as one."
        )
        sentence += " Any of them may be used; choose by memory or simplicity."
    else:
        outcome = DecisionOutcome.NOT_DECIDABLE
        sentence = f"On {inputs.size} cards no form can be chosen, because {_why_open(inputs)}."
        cure = verdict.cure if verdict.status in _DOUBTFUL else _MORE_STARTS
        cure = _WITHOUT_IT if _seems_dead(inputs) else cure
        sentence += f" What to do: {cure.rstrip('.')}."
    outside = (*_outside(inputs), *products(inputs.outputs))
    return SizeDecision(
        size=inputs.size,
        contract=inputs.contract,
        outcome=outcome,
        winner=None,
        runner_up=None,
        margin_pct=None,
        margin_low_pct=None,
        margin_high_pct=None,
        tied_with=tied,
        basis=_basis(inputs),
        sentence=" ".join((sentence, *outside)),
        conditions=(*outside, *_links(inputs)),
        unknowns=_unknowns(inputs),
        reversal=(),
        confidence=_confidence(inputs) if outcome is DecisionOutcome.NO_DIFFERENCE else Confidence.NONE,
    )


def _why_open(inputs: DecisionInputs) -> str:
    """What the cards, else the starts and what is missing, leave open."""
    if inputs.group.damage:
        return inputs.group.damage
    if seems_dead := _seems_dead(inputs):
        return f"{inputs.verdict.winner} leads and seems not to be what its name says ({'; '.join(seems_dead)})"
    missing = inputs.verdict.missing
    return why_open(inputs.verdict.selection) + (f"; missing: {'; '.join(missing)}" if missing else "")


def _seems_dead(inputs: DecisionInputs) -> list[str]:
    """The winner's features that evidence speaks against, though too weak to call them dead."""
    return [
        words for form in inputs.evidence if form.form.name == inputs.verdict.winner for words in doubtful(form.effects)
    ]


def _damaged(inputs: DecisionInputs) -> Verdict:
    """What a verdict amounts to on cards that decide nothing."""
    return msgspec.structs.replace(
        inputs.verdict,
        status=VerdictStatus.INCOMPLETE,
        reason=inputs.group.damage,
        cure=_RESET,
        winner=None,
        tied_with=(),
        window_drift=(),
    )


def _links(inputs: DecisionInputs) -> tuple[str, ...]:
    return (inputs.group.links,) if inputs.group.links else ()


def _outside(inputs: DecisionInputs) -> tuple[str, ...]:
    """One sentence when forms that are not in the matrix any more were faster than the best that is."""
    steps = {form.form.name: form.step_anchor_s for form in inputs.evidence if form.usable and form.step_anchor_s}
    best = steps.get(inputs.verdict.winner or "") or min(steps.values(), default=None)
    faster = [form for form in inputs.left_behind if best and form.step_anchor_s and form.step_anchor_s < best]
    if best is None or not faster:
        return ()
    told = []
    for form in sorted(faster, key=lambda form: form.step_anchor_s or 0.0):
        step = form.step_anchor_s or best
        doubt = "" if form.usable else f", but may not be ranked: {form.reason}"
        told.append(f"{form.form.name} by {100 * (best / step - 1):.1f} % ({seconds(step)} per step{doubt})")
    return (f"Not in the matrix any more, but measured faster under this contract: {listed(told)}.",)


def _basis(inputs: DecisionInputs) -> str:
    verdict, measured = inputs.verdict, [form for form in inputs.evidence if form.step_anchor_s and form.windows]
    windows = sorted({window for form in measured for window in form.windows})
    worst = max((form.dispersion_pct or 0.0 for form in measured), default=0.0)
    forms = f"{len(measured)} form{'' if len(measured) == 1 else 's'}"
    text = f"{forms} at the anchor tier, {len(windows)} windows, largest dispersion {worst:.1f} %"
    return f"{text}; {_BASIS[verdict.status]}"


def _conditions(inputs: DecisionInputs, winner: str, runner: str) -> tuple[str, ...]:
    """Gating variables of the pair with the side that was measured."""
    found: list[str] = []
    reversing = [item for item in inputs.projections if item.against == winner and item.threshold is not None]
    levels = {(item.form, item.quantity): item for item in reversed(reversing)}  # one level whatever the fix
    behind = {rival.form: rival.behind_pct for rival in inputs.verdict.selection.rivals}
    told = [item for item in levels.values() if item.form in behind]
    for item in told[:3]:
        found.append(
            f"When {item.quantity} of {item.form} is above {milliseconds(item.threshold or 0.0)} (projected), {winner} "
            f"wins, else {item.form}; measured {milliseconds(item.level)}, so {winner} "
            f"by {behind[item.form]:.1f} %."
        )
    found += _grouped_query(inputs, winner, runner)
    if not found:
        found.append(
            f"This holds for this workload, group and software; nothing measured says on which variable {winner} "
            f"against {runner} depends."
        )
    return tuple(found)


def _grouped_query(inputs: DecisionInputs, winner: str, runner: str) -> list[str]:
    """The all-gather-KV form's gating variable: its K/V bytes shrink only with grouped-query attention."""
    forms = {form.form.name: form.form for form in inputs.evidence}
    gathers = [name for name in (winner, runner) if forms[name].ag > 1]
    if inputs.model is None or len(gathers) != 1:
        return []
    gather, other = gathers[0], runner if gathers[0] == winner else winner
    model = inputs.model
    state = (
        f"K and V carry {model.kv_head_count} of {model.heads} heads here"
        if model.grouped_query
        else f"all {model.heads} heads have their own K and V here"
    )
    return [
        f"When grouped-query attention shrinks K and V, {gather} sends less than {other}, else it does not; "
        f"{state}; measured, {winner} is faster."
    ]


def _unknowns(inputs: DecisionInputs) -> tuple[str, ...]:
    found = [*feature_doubts(inputs.verdict.winner, {form.form.name: form.effects for form in inputs.evidence})]
    found += [f"{item.form} is not ranked: {item.reason}." for item in inputs.verdict.did_not_run]
    found += [f"{text}." for text in inputs.verdict.left_out]
    found += [*not_compared(inputs.outputs), *inputs.group.doubts, *(item.text for item in inputs.unexplained)]
    found += [f"{name} was not measured further: {reason}." for name, reason in inputs.skipped.items()]
    open_gates: dict[str, list[str]] = {}
    for gate in inputs.gates:
        if gate.status == UNKNOWN and gate.gate in ("G1", "G3", "G5"):
            what = f"{gate.gate} {GATES[gate.gate]} ({gate.text.split(';')[0]})"
            open_gates.setdefault(what, []).append(gate.form)
    found += [f"{gate} of {listed(forms)}." for gate, forms in open_gates.items()]
    return tuple(found)


def _reverses(inputs: DecisionInputs, winner: str) -> str:
    """The nearest level at which the order reverses, in short: the fix whose projection comes closest."""
    found = [item for item in inputs.projections if item.against == winner and item.threshold is not None]
    if not found:
        return " Nothing measured tells at which level it would reverse."
    item = min(found, key=lambda projection: projection.step_s)
    return (
        f" Reverses when {item.quantity} of {item.form} falls to {milliseconds(item.threshold or 0.0)}; "
        f"{item.fix.words} would give {milliseconds(item.projected_level)}, and {item.both_words} (projection)."
    )


def _confidence(inputs: DecisionInputs) -> Confidence:
    """How far the choice can be trusted.

    ``low``: a planned form is missing, a window drifted beyond its limit, a feature of the winner is unproven, or its
    cell or its nearest rival's disperses too much.
    ``high``: every window saw the winner ahead of its nearest rival, the margin is at least twice the noise floor, its
    interval leaves no doubt, the cells are quiet enough to be ranked, and the cards are known to be as fast as they
    should be.
    """
    verdict, found = inputs.verdict, inputs.verdict.selection
    pair = (found.leader, found.rivals[0].form)
    unproved = any(unproven(form.effects) for form in inputs.evidence if form.form.name == verdict.winner)
    unproved |= bool(verdict.left_out)
    unproved |= any(not form.usable for form in inputs.evidence if form.form.name in pair)
    if unproved or verdict.status is VerdictStatus.INCOMPLETE or any(drift.exceeds for drift in verdict.window_drift):
        return Confidence.LOW
    if inputs.group.doubts or verdict.status is VerdictStatus.UNSTABLE:
        return Confidence.MODERATE
    nearest = found.rivals[0]
    several = min((found.starts[form] for form in (found.leader or "", nearest.form)), default=0) > 1
    clear = nearest.behind_pct >= 2 * found.zone_pct and (nearest.low_pct or 0.0) > 0 and verdict.windows_agree
    if verdict.tied_with:  # two forms that are no different: the interval must say so
        clear = max(abs(nearest.low_pct or 0.0), abs(nearest.high_pct or 0.0)) <= found.zone_pct
    return Confidence.HIGH if clear and several else Confidence.MODERATE


def listed(names: Sequence[str]) -> str:
    """Names as they are said one after the other: ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
