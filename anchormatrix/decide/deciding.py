"""All contracts of a run to one decision: sizes, scaling between them, and whether older decisions must be verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from anchormatrix.decide.assemble import judge_contract
from anchormatrix.decide.conclusion import SizeDecision, overall
from anchormatrix.decide.evidence import FormEvidence, gather
from anchormatrix.decide.ledger import append_bases, basis_as_dict, basis_from_dict, read_bases
from anchormatrix.decide.reverify import Stored as Basis
from anchormatrix.decide.reverify import Trigger, TriggerLimits, reverify
from anchormatrix.decide.scaling import scaling
from anchormatrix.decide.stored import (
    card_memory_gb,
    fixed_costs,
    read_contract,
    read_stored,
    skipped_sessions,
    step_facts,
)
from anchormatrix.errors import InputError
from anchormatrix.planning.candidates import Candidates, pair_statement
from anchormatrix.planning.configured import candidates_of
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.settings import Settings


@dataclass(frozen=True)
class Concluded:
    """One contract with what its decision rests on."""

    contract: Contract
    evidence: tuple[FormEvidence, ...]
    decision: SizeDecision
    basis: Basis


def conclude(
    results: Path, contract_files: Sequence[Path], settings: Settings
) -> tuple[dict[str, Any], list[Concluded]]:
    """The content of ``decision.json`` and what it rests on. Raises :class:`InputError` for an unusable file."""
    found = [_conclude_one(results, read_contract(path), settings) for path in contract_files]
    known = read_bases(results / "decisions.jsonl")
    triggers = [
        {"size": item.contract.size, **trigger.as_dict(), "text": f"{item.contract.size} cards: {trigger.text}"}
        for item in found
        for trigger in _triggers(item, known.get(item.contract.size, ()), settings)
    ]
    statements = [
        {"text": statement.text, **statement.as_dict()}
        for a, b in combinations(sorted(found, key=lambda item: item.contract.size), 2)
        if a.contract.size < b.contract.size
        for statement in scaling((a.contract, a.evidence), (b.contract, b.evidence))
    ]
    values = overall([item.decision for item in found], reverify=triggers, scaling=statements)
    values["skipped"] = [
        {"size": item.contract.size, "text": f"{item.contract.size} cards, {text}"}
        for item in found
        for text in skipped_sessions(results, item.contract, settings)
    ]
    candidates = [(item, _candidates(results, settings, item.contract.size, item.contract)) for item in found]
    values["excluded"] = [
        {"size": item.contract.size, "form": out.form.name, "text": f"{out.form.name}: {out.reason}"}
        for item, known in candidates
        for out in known.excluded
    ]
    values["pairs"] = [
        {"size": item.contract.size, "text": _pair(item, known)} for item, known in candidates if item.contract.size > 1
    ]
    return values, found


def _pair(item: Concluded, known: Candidates) -> str:
    """Which same-size pair the matrix rests on, counting only forms that ran; or why there is none."""
    gone = {e.form.name: e.reason for e in item.evidence if e.status in ("did_not_run", "void", "unmeasurable")}
    ran = [form for form in known.forms if form.name not in gone]
    return pair_statement(item.contract.size, ran, {**{e.form.name: e.reason for e in known.excluded}, **gone})


def remember(results: Path, found: Sequence[Concluded]) -> None:
    """Append what the decisions rest on to ``decisions.jsonl``, where it changed."""
    lines = [basis_as_dict(item.contract.size, item.contract.id, item.decision.winner, item.basis) for item in found]
    append_bases(results / "decisions.jsonl", lines, read_bases(results / "decisions.jsonl"))


def check_triggers(results: Path, settings: Settings) -> list[dict[str, Any]]:
    """The triggers of every remembered decision against the configuration as it is now; nothing is measured or read
    from a host. Raises :class:`InputError` when no decision was remembered.
    """
    known = read_bases(results / "decisions.jsonl")
    if not known:
        raise InputError("no decision is remembered", where=str(results / "decisions.jsonl"), todo="run matrix_report")
    found = []
    for size, lines in sorted(known.items()):
        before = basis_from_dict(lines[-1])
        contract = results / str(lines[-1]["contract"]) / "contract.json"
        possible = _possible(results, settings, size, read_contract(contract) if contract.exists() else None)
        now = Basis(before.verdict, before.evidence, step_facts(settings), before.fixed_s, possible)
        found += [{"size": size, **trigger.as_dict()} for trigger in reverify(before, now, _limits(settings))]
    return found


def _conclude_one(results: Path, contract: Contract, settings: Settings) -> Concluded:
    stored = read_stored(results, contract, settings)
    evidence = gather(stored.forms, stored.sessions, stored.cells, stored.attributions, stored.model)
    basis = Basis(
        verdict=stored.verdict,
        evidence=evidence,
        facts=step_facts(settings),
        fixed_s=fixed_costs(results, contract, settings),
        possible=_possible(results, settings, contract.size, contract),
    )
    return Concluded(contract, evidence, judge_contract(stored).decision, basis)


def _candidates(results: Path, settings: Settings, size: int, contract: Contract | None) -> Candidates:
    """The candidates as things are now, after the memory gate where the cards' memory is known."""
    memory = None if contract is None else card_memory_gb(results / "health.json", contract)
    return candidates_of(settings, size, card_gb=memory)


def _possible(results: Path, settings: Settings, size: int, contract: Contract | None) -> tuple[Form, ...]:
    return _candidates(results, settings, size, contract).forms


def _triggers(item: Concluded, known: Sequence[Mapping[str, Any]], settings: Settings) -> tuple[Trigger, ...]:
    """Against the last remembered decision of this size that rests on something else than the present one."""
    own = basis_as_dict(item.contract.size, item.contract.id, item.decision.winner, item.basis)
    earlier = [line for line in known if line != own]
    before = basis_from_dict(earlier[-1]) if earlier else None
    return reverify(before, item.basis, _limits(settings))


def _limits(settings: Settings) -> TriggerLimits:
    return TriggerLimits(drift_pct=settings.verdict.drift_pct)
