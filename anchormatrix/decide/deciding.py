"""The decision over all contracts: sizes, scaling between them, and whether older decisions must be verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec

from anchormatrix.decide.assemble import judge_contract
from anchormatrix.decide.captured import late_shares
from anchormatrix.decide.evidence import FormEvidence, gather
from anchormatrix.decide.left_behind import read_attributions
from anchormatrix.decide.reverify import TriggerLimits, append_bases, read_bases, reverify
from anchormatrix.decide.stored import (
    fixed_costs,
    read_stored,
    skipped_sessions,
    step_facts,
)
from anchormatrix.decide.theory.scaling import Measured, incomparable, scaling
from anchormatrix.errors import InputError
from anchormatrix.planning.candidates import pair_statement
from anchormatrix.planning.configured import candidates_of
from anchormatrix.records.conclusions.decision import (
    Basis,
    BasisForm,
    Confidence,
    Decision,
    DecisionOutcome,
    ExcludedForm,
    Scaling,
    SizeDecision,
    SizeNote,
    Trigger,
)
from anchormatrix.records.contract import Contract, StoredContract
from anchormatrix.records.form import parse_form
from anchormatrix.records.plan import ContractPlan, RunPlan
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import read_record

_NOT_RUN = (SessionStatus.DID_NOT_RUN, SessionStatus.VOID, SessionStatus.UNMEASURABLE)


@dataclass(frozen=True)
class Concluded:
    """One contract with what its decision rests on."""

    contract: Contract
    planned: ContractPlan
    evidence: tuple[FormEvidence, ...]
    decision: SizeDecision
    basis: Basis


def conclude(
    results: Path, contract_files: Sequence[Path], plan: RunPlan, settings: Settings
) -> tuple[Decision, list[Concluded]]:
    """The decision of a run and what it rests on. Raises :class:`InputError` for an unusable file."""
    found = [_conclude_one(results, read_record(path, StoredContract), plan, settings) for path in contract_files]
    known = read_bases(results / "decisions.jsonl")
    decision = overall(
        [item.decision for item in found],
        reverify=[
            msgspec.structs.replace(trigger, text=f"{trigger.size} cards: {trigger.text}")
            for item in found
            for trigger in _triggers(item, found, known.get(item.contract.size, ()), settings)
        ],
        scaling=[
            statement
            for a, b in combinations(sorted(found, key=lambda item: item.contract.size), 2)
            if a.contract.size < b.contract.size
            for statement in scaling(Measured(a.contract, a.evidence), Measured(b.contract, b.evidence))
        ],
        skipped=[
            SizeNote(size=item.contract.size, text=f"{item.contract.size} cards, {text}")
            for item in found
            for text in skipped_sessions(results, item.planned, settings)
        ],
        excluded=[
            ExcludedForm(size=item.contract.size, form=out.form, text=f"{out.form}: {out.reason} ({out.source})")
            for item in found
            for out in item.planned.excluded
        ],
        pairs=[SizeNote(size=item.contract.size, text=_pair(item)) for item in found if item.contract.size > 1],
    )
    return decision, found


def overall(
    decisions: Sequence[SizeDecision],
    *,
    reverify: Sequence[Trigger] = (),
    scaling: Sequence[Scaling] = (),
    skipped: Sequence[SizeNote] = (),
    excluded: Sequence[ExcludedForm] = (),
    pairs: Sequence[SizeNote] = (),
) -> Decision:
    """Every size, and on top the largest size that was decided.

    Forms of different sizes are never ranked against each other, so the top level repeats the statement of the largest
    card count with a winner (else of the largest card count at all) instead of choosing among sizes.
    """
    head = max(decisions, key=lambda item: (item.outcome is DecisionOutcome.WINNER, item.size), default=None)
    return Decision(
        sizes={str(item.size): item for item in sorted(decisions, key=lambda item: item.size)},
        size=head.size if head else None,
        winner=head.winner if head else None,
        runner_up=head.runner_up if head else None,
        margin_pct=head.margin_pct if head else None,
        margin_low_pct=head.margin_low_pct if head else None,
        margin_high_pct=head.margin_high_pct if head else None,
        basis=head.basis if head else "no contract",
        conditions=head.conditions if head else (),
        unknowns=head.unknowns if head else (),
        reversal=head.reversal if head else (),
        confidence=head.confidence if head else Confidence.NONE,
        sentence=head.sentence if head else None,
        reverify_triggers=tuple(reverify),
        scaling=tuple(scaling),
        skipped=tuple(skipped),
        excluded=tuple(excluded),
        pairs=tuple(pairs),
    )


def _pair(item: Concluded) -> str:
    """Which same-size pair the matrix rests on, counting only forms that ran; or why there is none."""
    gone = {e.form.name: e.reason for e in item.evidence if e.status in _NOT_RUN}
    ran = [parse_form(name) for name in item.planned.forms if name not in gone]
    return pair_statement(item.contract.size, ran, {**{e.form: e.reason for e in item.planned.excluded}, **gone})


def remember(results: Path, found: Sequence[Concluded]) -> None:
    """Append what the decisions rest on to ``decisions.jsonl``, where it changed."""
    path = results / "decisions.jsonl"
    append_bases(path, [item.basis for item in found], read_bases(path))


def check_triggers(results: Path, plan: RunPlan | None, settings: Settings) -> list[Trigger]:
    """The triggers of every remembered decision against the configuration as it is now; nothing is measured or read
    from a host: the cards' memory is that of the last ``plan``. Raises :class:`InputError` when no decision was
    remembered.
    """
    known = read_bases(results / "decisions.jsonl")
    if not known:
        raise InputError("no decision is remembered", where=str(results / "decisions.jsonl"), todo="run matrix_report")
    found: list[Trigger] = []
    for size, lines in sorted(known.items()):
        before = lines[-1]
        planned = plan.find(before.contract) if plan else None
        card_gb, version = (planned.card_gb, planned.engine_version) if planned else (None, "")
        possible = candidates_of(settings, size, card_gb=card_gb, version=version).forms
        now = msgspec.structs.replace(
            before, facts=step_facts(settings), possible=tuple(form.name for form in possible)
        )
        smaller = [last[-1] for other, last in known.items() if other < size and last[-1].facts == before.facts]
        found += reverify(before, now, _limits(settings), smaller=smaller)
    return found


def _conclude_one(results: Path, contract: Contract, plan: RunPlan, settings: Settings) -> Concluded:
    planned = plan.of(contract.id)
    stored = read_stored(results, contract, planned, settings)
    evidence = gather(stored.forms, stored.sessions, stored.cells, stored.attributions, stored.model, stored.verdict)
    decision = judge_contract(stored).decision
    late = late_shares(read_attributions(results / contract.id, planned.forms, "attribution-anchor.json"))
    basis = Basis(
        size=contract.size,
        contract=contract.id,
        winner=decision.winner,
        status=stored.verdict.status,
        forms=tuple(_basis_form(item, late.get(item.form.name)) for item in evidence),
        facts=step_facts(settings),
        fixed_s=fixed_costs(results, planned),
        possible=planned.forms,
    )
    return Concluded(contract, planned, evidence, decision, basis)


def _basis_form(item: FormEvidence, late_share: float | None) -> BasisForm:
    return BasisForm(
        form=item.form.name,
        few_s=item.step_few_s,
        anchor_s=item.step_anchor_s,
        exposed_ms=item.parts.exposed_ms if item.parts else None,
        exposed_share=item.exposed_share,
        doubt=item.drift_doubt,
        capture_doubt=item.capture_doubt,
        exposed_share_anchor=late_share,
    )


def _triggers(
    item: Concluded, found: Sequence[Concluded], known: Sequence[Basis], settings: Settings
) -> tuple[Trigger, ...]:
    """Against the last remembered decision of this size that rests on something else than the present one."""
    earlier = [basis for basis in known if basis != item.basis]
    smaller = [
        other.basis
        for other in found
        if other.contract.size < item.contract.size and not incomparable(other.contract, item.contract)
    ]
    return reverify(earlier[-1] if earlier else None, item.basis, _limits(settings), smaller=smaller)


def _limits(settings: Settings) -> TriggerLimits:
    return TriggerLimits(drift_pct=settings.verdict.drift_pct, floor_pct=settings.verdict.noise_floor_pct)
