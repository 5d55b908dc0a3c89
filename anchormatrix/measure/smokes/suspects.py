"""Groups on which a running multi-card job had to be killed: suspect until a smoke on them passes.

The lease knows of every kill on the host, by whichever clone or watchdog; the marks beside the results add what this
clone saw itself, such as a group that ran far too slowly after its smoke.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from anchormatrix.errors import ContractError, InputError
from anchormatrix.hosts.base import Lease, StopRecord
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.smokes.expectation import expected_step, smoked_step
from anchormatrix.measure.smokes.judging import Expectation, judge_smoke
from anchormatrix.measure.smokes.running import smoke_under
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.smoke import Finding, FindingKind, Smoke, SmokeStatus, Suspicion
from anchormatrix.store.codec import read_record, write_record

NAME = "suspect.json"


def mark(contract: Contract, results: Path, what: str) -> None:
    """Remember why the contract's cards are suspect: what was killed on them, or ran far too slowly."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    write_record(
        results / contract.id / NAME, Suspicion(contract=contract.id, cards=contract.cards, what=what, when=when)
    )


def needs_smoke(stopped: StopRecord | None) -> bool:
    """Whether a stop may have damaged the driver's state."""
    return stopped is not None and (stopped.how == "sigkill" or stopped.survivors > 0)


def suspicions(contract: Contract, results: Path) -> list[tuple[Path, Suspicion]]:
    """The marks that touch the contract's cards, of whatever contract; an unreadable mark counts for its own."""
    found = []
    for path in sorted(results.glob(f"*/{NAME}")):
        try:
            mark = read_record(path, Suspicion)
        except InputError:
            cards = contract.cards if path.parent.name == contract.id else ()
            mark = Suspicion(contract=path.parent.name, cards=cards, what="an unreadable mark", when="")
        if set(mark.cards) & set(contract.cards):
            found.append((path, mark))
    return found


def clear(contract: Contract, form: Form, rig: Rig, results: Path, lease: Lease) -> None:
    """Smoke a suspect group under the lease held already, and take back the suspicion when it passes.

    It is held against what the group's own smoke took before, else what other sources expect. Raises
    :class:`ContractError` with the findings when the group fails; its stored smoke then says rejected.
    """
    marks = suspicions(contract, results)
    if not marks and not lease.suspect:
        return
    why = marks[0][1].what if marks else f"a job had to be killed on {show(lease.suspect)}"
    rig.say(f"cards {show(contract.cards)} are suspect ({why}): smoke first")
    run = smoke_under(contract, form, rig, lease)
    before = smoked_step(contract.id, form, results)
    expectation = (
        Expectation(before, "these cards' earlier smoke")
        if before
        else expected_step(contract, form.name, results, rig.settings)
    )
    smoke = judge_smoke(run.request, expectation, rig.settings.smoke)
    if smoke.status is SmokeStatus.REJECTED or needs_smoke(run.stopped):
        reasons = run.problem or "; ".join(finding.text for finding in smoke.findings) or "it had to be killed again"
        _reject(contract, results, reasons)
        raise ContractError(
            f"suspect ({why}), and the smoke fails: {reasons}",
            where=f"cards {show(contract.cards)}",
            todo="reset the driver, or run again: the workflow then uses another group",
        )
    take_back(contract.cards, marks)
    lease.trust()


def _reject(contract: Contract, results: Path, reasons: str) -> None:
    """Let the group's stored smoke say what was found since: the next run then takes the next legal group."""
    path = results / contract.id / "smoke.json"
    try:
        stored = read_record(path, Smoke)
    except InputError:
        return
    finding = Finding(FindingKind.RESIDUE, f"found again before a session: {reasons}")
    write_record(path, replace(stored, status=SmokeStatus.REJECTED, findings=(*stored.findings, finding)))


def after_smoke(contract: Contract, results: Path, smoke: Smoke, stopped: StopRecord | None) -> None:
    """Mark the group when the smoke itself had to be killed; take back its suspicion when the smoke passed."""
    if needs_smoke(stopped):
        mark(contract, results, "its smoke had to be killed")
    elif smoke.status is not SmokeStatus.REJECTED:
        take_back(contract.cards, suspicions(contract, results))


def take_back(cards: Iterable[int], marks: Iterable[tuple[Path, Suspicion]]) -> None:
    """Remove cards from their marks; a mark without cards is removed."""
    cleared = set(cards)
    for path, mark in marks:
        left = tuple(card for card in mark.cards if card not in cleared)
        if left:
            write_record(path, replace(mark, cards=left))
        else:
            os.unlink(path)
