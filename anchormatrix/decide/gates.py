"""The seven gates: each form of a contract passes, fails or stays unknown at each, with a number and its source.

A gate fails only on something measured. Theory (model figures, byte bound, masking bound, projection) can say where to
look and can contradict a measurement, which leaves the gate unknown; it never fails a form. Evidence that may not be
read leaves a gate unknown with the reason; :class:`FormEvidence` decides what may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchormatrix.decide.evidence import FormEvidence, extra_computing
from anchormatrix.decide.fastest import interval, why_open, won_by
from anchormatrix.decide.theory.bounds import ByteBound
from anchormatrix.decide.theory.projection import milliseconds, seconds
from anchormatrix.records.conclusions.gates import Gate, GateStatus, Projection
from anchormatrix.records.conclusions.selection import Selection, Standing
from anchormatrix.records.session import SessionStatus

GATES = {
    "G1": "runs through",
    "G2": "memory",
    "G3": "bytes over links",
    "G4": "extra computing",
    "G5": "masking bound",
    "G6": "same-window A/B and scaling",
    "G7": "projection",
}
PASSED, FAILED, UNKNOWN = GateStatus.PASSED, GateStatus.FAILED, GateStatus.UNKNOWN
_CLOSURE = 1.02  # a measured step may undercut a lower bound by the noise of both


@dataclass(frozen=True)
class GateInputs:
    """What the gates of one contract are evaluated from.

    ``selection`` ranks the forms at the anchor. ``memory`` maps a form's name to (GB needed, GB usable, words),
    ``bounds`` to its byte bound, ``scaling`` to how it scales from fewer cards, in words. ``no_memory`` says why a form
    is not in ``memory``.
    """

    evidence: Sequence[FormEvidence]
    memory: Mapping[str, tuple[float, float, str]] = field(default_factory=dict)
    no_memory: str = "the model's memory figures are not given"
    bounds: Mapping[str, ByteBound] = field(default_factory=dict)
    scaling: Mapping[str, str] = field(default_factory=dict)
    projections: Sequence[Projection] = ()
    noise_floor_pct: float = 1.0
    selection: Selection | None = None

    @property
    def best(self) -> FormEvidence | None:
        """The fastest form at the anchor, as far as it may be ranked."""
        ranked = [form for form in self.evidence if form.ranked_s]
        leader = self.selection.leader if self.selection else None
        return min(ranked, key=lambda form: (form.form.name != leader, form.ranked_s or 0.0), default=None)


def evaluate(inputs: GateInputs) -> tuple[Gate, ...]:
    """Every gate of every form, form by form in gate order."""
    return tuple(
        gate(form, inputs)
        for form in inputs.evidence
        for gate in (_runs, _memory, _bytes, _computing, _masking, _ab, _projected)
    )


def _result(
    gate: str, form: FormEvidence, status: GateStatus, number: float | None, unit: str, source: str, text: str
) -> Gate:
    return Gate(
        name=GATES[gate],
        gate=gate,
        form=form.form.name,
        status=status,
        number=number,
        unit=unit,
        source=source,
        text=text,
    )


def _runs(form: FormEvidence, inputs: GateInputs) -> Gate:
    source = f"session.json ({form.source})" if form.source else "no session"
    if form.status is SessionStatus.MEASURED:
        return _result("G1", form, PASSED, 1.0, "sessions", source, "runs through and proved its form")
    if form.status in (SessionStatus.DID_NOT_RUN, SessionStatus.VOID):
        word = "did not run through" if form.status is SessionStatus.DID_NOT_RUN else "ran, but not as this form"
        return _result("G1", form, FAILED, 0.0, "sessions", source, f"{word}: {form.reason or 'no reason recorded'}")
    word = form.reason or form.status or "not measured"
    return _result("G1", form, UNKNOWN, None, "sessions", source, word)


def _memory(form: FormEvidence, inputs: GateInputs) -> Gate:
    known = inputs.memory.get(form.form.name)
    if known is None:
        return _result("G2", form, UNKNOWN, None, "GB", "model figures, card memory", inputs.no_memory)
    needed, usable, words = known
    status = PASSED
    text = f"needs {_memory_words(needed)} of {_memory_words(usable)} usable per card{'; ' + words if words else ''}"
    if needed > usable and form.status is SessionStatus.MEASURED:
        text += "; it ran all the same, so the model's figures are too high"
    elif needed > usable:
        status = FAILED if form.status is SessionStatus.DID_NOT_RUN else UNKNOWN
        text += "; and it did not run" if status == FAILED else "; by the model's figures alone, it was not tried"
    return _result("G2", form, status, needed, "GB", "model figures, card memory", text)


def _memory_words(gb: float) -> str:
    """Model figures are decimal, cards are sold in powers of two: both are said."""
    return f"{gb:.1f} GB ({gb * 1e9 / 2**30:.1f} GiB)"


def _bytes(form: FormEvidence, inputs: GateInputs) -> Gate:
    bound = inputs.bounds.get(form.form.name)
    source = "model figures, links of the group, bandwidth sweep"
    if bound is None:
        return _result("G3", form, UNKNOWN, None, "ms/step", source, "no byte bound")
    same, cross = bound.worst
    columns = f"{same / 1e6:.1f} MB same-domain and {cross / 1e6:.1f} MB cross-domain per layer and rank"
    if bound.forwards_per_step != 1:
        columns += f" in one forward, of {bound.forwards_per_step:g} that a step runs one after the other (guidance)"
    if bound.step_ms is None:
        return _result("G3", form, UNKNOWN, None, "ms/step", source, f"{bound.unknown[0]}; {columns}")
    text = f"{columns}; about {milliseconds(bound.step_ms)} of communication per step by the sweep, hidden or not"
    if form.ranked_s is None:
        return _result("G3", form, PASSED, bound.step_ms, "ms/step", source, f"{text}; its step {form.rank_doubt}")
    if bound.step_ms > form.ranked_s * 1e3 * _CLOSURE:
        step = milliseconds(form.ranked_s * 1e3)
        why = f"the calls one after the other take {milliseconds(bound.step_ms)} by the sweep, more than the measured "
        why += f"step of {step}: they run at once, or figures, sweep or form are not what they say"
        return _result("G3", form, UNKNOWN, bound.step_ms, "ms/step", source, f"{why}; {columns}")
    return _result("G3", form, PASSED, bound.step_ms, "ms/step", source, text)


def _computing(form: FormEvidence, inputs: GateInputs) -> Gate:
    source = "attribution: Computing, deflated by the contract's common factor"
    own = form.captured.computing_ms if form.captured else None
    if own is None or form.ranked_s is None:
        return _result("G4", form, UNKNOWN, None, "ms/step", source, form.capture_doubt or form.rank_doubt)
    found = {
        other.form.name: extra
        for other in inputs.evidence
        if other.form != form.form
        and other.ranked_s
        and (extra := extra_computing(form, other, inputs.noise_floor_pct)) is not None
    }
    if not found:
        return _result("G4", form, UNKNOWN, None, "ms/step", source, "no other form's computing to compare it with")
    least = max(found, key=lambda name: found[name].extra_ms)
    extra = found[least]
    best = inputs.best
    text = "computes least of the captured forms"
    if extra.extra_ms > 0:
        text = f"computes {milliseconds(extra.extra_ms)} per step more than {least}, "
        floor = f"the noise floor of {milliseconds(extra.floor_ms)}"
        text += f"beyond {floor}" if extra.differs else f"within {floor}: no difference"
    if best and best.form != form.form and own > (best.ranked_s or 0.0) * 1e3 * _CLOSURE:
        text += f"; its computing alone exceeds the whole step of {best.form.name}: no masking can make it win"
        return _result("G4", form, FAILED, extra.extra_ms, "ms/step", source, text)
    return _result("G4", form, PASSED, max(0.0, extra.extra_ms), "ms/step", source, text)


def _masking(form: FormEvidence, inputs: GateInputs) -> Gate:
    parts, source = form.captured, "attribution: masking bound of the form's own family"
    if parts is None or parts.mask_doubt or form.ranked_s is None:
        doubt = form.capture_doubt or form.rank_doubt or (parts.mask_doubt if parts else "")
        return _result("G5", form, UNKNOWN, None, "ms/step", source, doubt)
    if form.form.usp * form.form.ag == 1:
        return _result(
            "G5", form, PASSED, parts.exposed_ms, "ms/step", source, "nothing that chunks of heads could hide"
        )
    if parts.exposed_at_bound_ms is None:
        return _result("G5", form, UNKNOWN, None, "ms/step", source, "no masked family in its capture")
    reachable = form.ranked_s - (parts.exposed_ms - parts.exposed_at_bound_ms) / 1e3
    text = (
        f"exposed {milliseconds(parts.exposed_ms)}, {milliseconds(parts.exposed_at_bound_ms)} at its bound with "
        f"{parts.mask_chunks} chunks: would take {seconds(reachable)} per step (projection)"
    )
    best = inputs.best
    if best and best.form != form.form and reachable > (best.ranked_s or 0.0) * _CLOSURE:
        text += f", still above {best.form.name}'s measured {seconds(best.ranked_s or 0.0)}"
    return _result("G5", form, PASSED, parts.exposed_at_bound_ms, "ms/step", source, text)


def _ab(form: FormEvidence, inputs: GateInputs) -> Gate:
    """The selection ranks; scaling from fewer cards stands beside it, because the topology changed too."""
    selection, source = inputs.selection, "cells.csv, anchor tier"
    if selection is None or form.ranked_s is None:
        why = form.rank_doubt or "nothing was selected"
        return _result("G6", form, UNKNOWN, form.step_anchor_s, "s/step", source, why)
    status, text = _standing(form.form.name, selection)
    if words := inputs.scaling.get(form.form.name):
        source, text = f"{source}, also of fewer cards", f"{text}; {words}"
    return _result("G6", form, status, form.ranked_s, "s/step", source, text)


def _standing(form: str, selection: Selection) -> tuple[GateStatus, str]:
    """Where a form stands among the server starts of the same windows."""
    rival = next((item for item in selection.rivals if item.form == form), None)
    if rival is None:
        return (PASSED, won_by(selection)) if selection.decided else (UNKNOWN, why_open(selection))
    text, zone = f"{interval(rival)} behind {selection.leader} in the same windows", f"{selection.zone_pct:g} %"
    if form in selection.tied:
        return PASSED, f"{text}: no difference, it lies within {zone}"
    if rival.standing is Standing.OPEN:
        return UNKNOWN, f"{text}: it may still be faster by more than {zone}"
    if rival.standing is Standing.SETTLED:
        return PASSED, f"{text}: it may be the faster one, by no more than {zone}"
    if rival.low_pct is None or rival.low_pct <= 0:  # left out by an earlier look; what is known now leaves a doubt
        return UNKNOWN, f"{text}: so far that it was not started again"
    return FAILED, f"{text}, beyond doubt"


def _projected(form: FormEvidence, inputs: GateInputs) -> Gate:
    """The form's best projection in short; the list of projections says each of them in full, once."""
    own = [item for item in inputs.projections if item.form == form.form.name]
    best = inputs.best
    if best is not None and best.form == form.form:
        against = [item for item in inputs.projections if item.against == form.form.name and item.threshold is not None]
        if not against:
            text = "no projection of another form reverses the order" if inputs.projections else "nothing was projected"
            return _result("G7", form, PASSED if inputs.projections else UNKNOWN, None, "ms", "projection", text)
        first = max(against, key=lambda item: (item.reverses, item.threshold or 0.0))
        text = f"{first.form} would be faster with {first.fix.words}; {first.both_words}"
        if not first.reverses:
            text = f"no projection reverses the order; nearest is {first.form} with {first.fix.words}"
        return _result("G7", form, PASSED, first.threshold, first.unit, "projection", text)
    if not own:
        why = form.capture_doubt or form.rank_doubt or "nothing of it could be fixed"
        return _result("G7", form, UNKNOWN, None, "ms", "projection", why)
    first = own[0]
    change = 100 * (first.step_s / first.against_s - 1)
    text = f"with {first.fix.words}, {seconds(first.step_s)} per step: {abs(change):.1f} % "
    text += f"{'below' if change < 0 else 'above'} {first.against}; {first.both_words} (projection)"
    return _result("G7", form, PASSED, first.threshold, first.unit, "projection", text)
