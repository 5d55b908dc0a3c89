"""The judgement of a contract: its seven gates and decision, by the one path that every command takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchormatrix.decide.conclusion import DecisionInputs, decide
from anchormatrix.decide.evidence import FormEvidence, gather, least_computing
from anchormatrix.decide.gates import GateInputs, evaluate
from anchormatrix.decide.group_state import UNKNOWN_GROUP, GroupState
from anchormatrix.decide.theory.bounds import ByteBound, bandwidths, byte_bound, unexplained
from anchormatrix.decide.theory.projection import Side, all_projections
from anchormatrix.decide.theory.scaling import Measured, scaling_words
from anchormatrix.measure.bandwidth.curve import Curves
from anchormatrix.planning.memory import NO_CARD_MEMORY, MemoryLimits, memory_of, why_not
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.conclusions.gates import FormBytes, Gates, Projection, Unexplained
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.outputs import SessionOutput
from anchormatrix.records.session import Session
from anchormatrix.records.settings.things import ModelSettings


@dataclass(frozen=True)
class Stored:
    """What is stored of one contract.

    ``model``, ``memory`` and ``sweep`` may be unknown; their gates then stay unknown. ``skipped`` maps a form to the
    reason why it was not measured further. ``left_behind`` are forms measured before they were taken out of the matrix;
    no gate speaks of them.
    """

    contract: Contract
    forms: Sequence[Form]
    sessions: Sequence[Session]
    cells: Sequence[Cell]
    verdict: Verdict
    model: ModelSettings | None = None
    memory: MemoryLimits | None = None
    sweep: Curves | None = None
    attributions: Mapping[str, Attribution] = field(default_factory=dict)
    outputs: Sequence[SessionOutput] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    noise_floor_pct: float = 1.0
    left_behind: Sequence[FormEvidence] = ()
    group: GroupState = UNKNOWN_GROUP


def judge_contract(stored: Stored, smaller: Sequence[Measured] = ()) -> Gates:
    """Evaluate every gate and conclude. Pure: everything it says comes from ``stored``, but how the forms scale, which
    comes from the contracts of fewer cards."""
    evidence = gather(stored.forms, stored.sessions, stored.cells, stored.attributions, stored.model, stored.verdict)
    bounds = _bounds(stored, evidence)
    compared = bandwidths(evidence, bounds)
    open_differences = unexplained(compared)
    projections = _projections(stored, evidence, compared, bounds)
    gates = evaluate(
        GateInputs(
            evidence=evidence,
            memory=_memory(stored, evidence),
            no_memory=_no_memory(stored),
            bounds=bounds,
            selection=stored.verdict.selection,
            scaling=scaling_words(Measured(stored.contract, evidence), smaller),
            projections=projections,
            noise_floor_pct=stored.noise_floor_pct,
        )
    )
    decision = decide(
        DecisionInputs(
            size=stored.contract.size,
            contract=stored.contract.id,
            verdict=stored.verdict,
            evidence=evidence,
            model=stored.model,
            gates=gates,
            projections=projections,
            unexplained=open_differences,
            skipped=stored.skipped,
            left_behind=stored.left_behind,
            group=stored.group,
            outputs=stored.outputs,
        )
    )
    return Gates(
        contract=stored.contract.id,
        size=stored.contract.size,
        gates=gates,
        bytes=tuple(_bytes(name, bound) for name, bound in bounds.items()),
        unexplained=open_differences,
        projections=projections,
        decision=decision,
        effects={item.form.name: item.effects for item in evidence if item.effects},
    )


def _bounds(stored: Stored, evidence: Sequence[FormEvidence]) -> dict[str, ByteBound]:
    if stored.model is None:
        return {}
    return {
        item.form.name: byte_bound(item.form, stored.model, stored.contract, stored.sweep)
        for item in evidence
        if item.form.cards == stored.contract.size
    }


def _no_memory(stored: Stored) -> str:
    """Why the memory gate cannot judge, where it cannot."""
    if stored.model is not None and stored.model.weights_gb and stored.memory is None:
        return NO_CARD_MEMORY
    return GateInputs.no_memory


def _memory(stored: Stored, evidence: Sequence[FormEvidence]) -> dict[str, tuple[float, float, str]]:
    if stored.model is None or stored.memory is None or not stored.model.weights_gb:
        return {}
    usable = stored.memory.card_gb - stored.memory.reserve_gb
    found = {}
    for item in evidence:
        memory = memory_of(item.form, stored.model)
        plain = memory_of(dataclasses.replace(item.form, offload=""), stored.model)
        words = f"unlocked by {item.form.offload}" if item.form.offload and plain.total_gb > usable else ""
        if memory.total_gb <= usable and (reason := why_not(memory, stored.memory)):
            words = reason
        found[item.form.name] = (memory.total_gb, usable, words)
    return found


def _projections(
    stored: Stored, evidence: Sequence[FormEvidence], compared: Sequence[Unexplained], bounds: Mapping[str, ByteBound]
) -> tuple[Projection, ...]:
    """Every slower form projected against the winner, and both with the same fix."""
    ratios: dict[str, dict[tuple[str, str], float]] = {}
    for row in compared:
        differs = row in unexplained(compared)  # below that the two agree, and there is nothing to win
        ratios.setdefault(row.form, {})[row.family, row.communicator] = row.isolated_over_implied if differs else 1.0
    sides = {
        (name := item.form.name): Side(item, ratios.get(name, {}), _halved(bounds.get(name), stored.sweep))
        for item in evidence
    }
    best = sides.pop(stored.verdict.winner or "", None)
    if best is None:
        return ()
    least = least_computing(evidence)
    return tuple(
        found
        for side in sides.values()
        for found in all_projections(side, best, least=least, noise_floor_pct=stored.noise_floor_pct)
    )


def _halved(bound: ByteBound | None, sweep: Curves | None) -> float | None:
    """Time of the form's calls with half the payload ÷ with all of it, from the sweep."""
    if bound is None or sweep is None or bound.layer_us is None or not bound.calls:
        return None
    half = 0.0
    for call in bound.calls:
        estimate = sweep.estimate(call.kind, call.link_class, call.ranks, call.payload_bytes / 2, call.concurrency)
        half += (estimate.time_us or 0.0) * call.calls_per_layer
    return half / bound.layer_us if bound.layer_us else None


def _bytes(name: str, bound: ByteBound) -> FormBytes:
    same, cross = bound.worst
    return FormBytes(
        form=name,
        same_domain_bytes=same,
        cross_domain_bytes=cross,
        layer_us=bound.layer_us,
        step_ms=bound.step_ms,
        forwards_per_step=bound.forwards_per_step,
        calls=bound.calls,
    )
