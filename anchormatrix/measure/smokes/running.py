"""The smoke run: one short request on the real cards of a contract, before anything is measured on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from anchormatrix.engines.base import ServeCommand
from anchormatrix.engines.timing import Request
from anchormatrix.errors import BusyError, ContractError, InputError, LeaseError
from anchormatrix.hosts.base import Lease, StopRecord
from anchormatrix.measure import live_cards, room
from anchormatrix.measure.proof import prove
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.served import DidNotRunError, Served, stop_of
from anchormatrix.measure.smokes.expectation import History, comparable, expected_step
from anchormatrix.measure.smokes.judging import Expectation, SmokeJudgement, judge_smoke, smoke_step
from anchormatrix.measure.smokes.residue import damaged_within
from anchormatrix.outputs.decoding import Output, broken
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract, ContractList, GroupCondition
from anchormatrix.records.form import Form
from anchormatrix.records.host import HostState
from anchormatrix.records.requests import Role
from anchormatrix.records.session import Failure
from anchormatrix.records.settings.values import OnBusy
from anchormatrix.records.smoke import Finding, FindingKind, Reference, Smoke, SmokeStatus
from anchormatrix.store.codec import read_record


@dataclass(frozen=True)
class SmokeRun:
    """What one served smoke brought: a request, or why there is none; ``broken``: its output is no picture."""

    form: Form
    command: ServeCommand
    started_at: str
    request: Request | None
    problem: str
    evidence: tuple[str, ...]
    stopped: StopRecord | None
    failure: Failure | None = None
    broken: bool = False


def run_smoke(
    contract: Contract,
    forms: Sequence[Form],
    rig: Rig,
    results: Path,
    *,
    history: History | None = None,
    references: Sequence[Contract] = (),
    state: str = "",
    generation: int = 0,
    night: str = "",
) -> tuple[Smoke, StopRecord | None]:
    """Smoke a contract's group and judge it; also returns how the server ended.

    The first form that runs and takes effect counts: a form that cannot start says nothing about the cards. When
    nothing tells how fast the group should be, the first usable one of ``references`` (other groups like it) is smoked
    as well. When no such group is there, one that holds cards which smaller groups' smokes (of ``night``, when given)
    found in the residue state is rejected, too. A tenant who does not leave in time rejects the group, so that the
    sizes without one are measured all the same. ``state`` and ``generation`` are only noted.

    Raises :class:`ContractError`, :class:`LeaseError` and :class:`HostError` when the group cannot be tried at all.
    """
    noted: dict[str, Any] = {"state": state, "generation": generation, "night": night}
    with _lease(contract, rig, "smoke", wait=True) as lease:
        try:
            before = live_cards.read_fit(contract, rig.host, rig.device, rig.settings, rig.say)
        except BusyError as error:
            if rig.settings.health.on_busy == OnBusy.FAIL:
                raise
            return _occupied(contract, error, noted), None
        suspect = lease.suspect
        runs = _runs(contract, forms, rig, lease)
        after = rig.device.read(rig.host, timeout_s=rig.settings.host.command_timeout_s)
    run = runs[-1]
    expectation, reference = _expected(contract, run, rig, results, history, references)
    warned = live_cards.warned(contract.cards, before)
    judged = judge_smoke(run.request, expectation, rig.settings.smoke, warned=warned, cards=contract.cards)
    judged = _beside_the_request(judged, contract, runs, after, results, night or None)
    smoke = Smoke(
        contract=contract.id,
        status=judged.status,
        findings=judged.findings,
        step_s=judged.step_s,
        expected_s=expectation.step_s if expectation else None,
        expected_source=expectation.source if expectation else None,
        ranks=judged.ranks,
        form=run.form.name,
        command=tuple(run.command.argv),
        started_at=run.started_at,
        evidence=run.evidence,
        failure=run.failure,
        tried=tuple(item.form.name for item in runs),
        stop=stop_of(run.stopped),
        reference=reference,
        **noted,
    )
    if suspect and smoke.status is not SmokeStatus.REJECTED:
        _trust_again(contract, rig, run.stopped)
    return smoke, run.stopped


def _trust_again(contract: Contract, rig: Rig, stopped: StopRecord | None) -> None:
    """Take the lease's suspicion back from cards whose smoke passed, unless that smoke had to be killed, too."""
    if stopped is not None and stopped.how != "sigkill":
        with _lease(contract, rig, "trust after its smoke", wait=True) as lease:
            lease.trust()


def _expected(
    contract: Contract,
    run: SmokeRun,
    rig: Rig,
    results: Path,
    history: History | None,
    references: Sequence[Contract],
) -> tuple[Expectation | None, Reference | UnsetType | None]:
    """What the request should take, and the group smoked to tell it when nothing else does."""
    if run.request is None:
        return None, UNSET
    expectation = expected_step(contract, run.form.name, results, rig.settings, history)
    return (expectation, UNSET) if expectation else _measured_reference(contract, run.form, rig, references)


def _beside_the_request(
    judged: SmokeJudgement,
    contract: Contract,
    runs: Sequence[SmokeRun],
    after: HostState,
    results: Path,
    night: str | None,
) -> SmokeJudgement:
    """The judgement with what the request itself does not tell: failed starts, damaged or sick cards."""
    if runs[-1].request is None:
        kinds = {False: FindingKind.DID_NOT_RUN, True: FindingKind.BROKEN_OUTPUT}
        missed = tuple(Finding(kinds[item.broken], f"{item.form.name}: {item.problem}") for item in runs)
        judged = replace(judged, status=SmokeStatus.REJECTED, findings=missed)
    found = []
    if judged.status is SmokeStatus.UNVERIFIED and (damaged := damaged_within(contract, results, night=night)):
        listed = "; ".join(item.text for item in damaged)
        text = f"it holds damaged cards: {listed}; reset the driver or use another group"
        found.append(Finding(FindingKind.RESIDUE, text))
    if sick := live_cards.unfit(contract.cards, after):
        found.append(Finding(FindingKind.WARNING_CONFIRMED, f"after the smoke {'; '.join(sick)}"))
    if not found:
        return judged
    return replace(judged, status=SmokeStatus.REJECTED, findings=(*judged.findings, *found))


def _occupied(contract: Contract, error: BusyError, noted: Mapping[str, Any]) -> Smoke:
    return Smoke(
        contract=contract.id,
        status=SmokeStatus.REJECTED,
        findings=(Finding(FindingKind.BUSY, f"{error.where}: {error.what}"),),
        step_s=None,
        expected_s=None,
        expected_source=None,
        ranks=(),
        form="",
        command=(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        evidence=(),
        **noted,
    )


def smoke_under(contract: Contract, form: Form, rig: Rig, lease: Lease) -> SmokeRun:
    """Serve one form under a lease that is held already, send one request of ``smoke.steps`` steps, stop."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    scratch = rig.host.scratch(f"{contract.id}-smoke")
    room.require_room(rig, scratch)

    def command(port: int) -> ServeCommand:
        made = rig.engine.serve_command(
            form, port=port, visible_env=rig.device.visible_env(contract.cards), capture_dir=None
        )
        rig.say(f"starting {' '.join(made.argv)}")
        return made

    served = Served(rig, command, lease=lease, log_path=f"{scratch}/server.log")
    request: Request | None = None
    problem, failed, spoiled = "", None, ""
    try:
        with served:
            request = served.ask(Role.SMOKE, "", rig.settings.smoke.steps)
    except DidNotRunError as error:
        problem, failed = str(error), error
    room.require_written(rig, scratch, (served.log_text(),))
    if not problem:
        log = served.log()
        proof = prove(log, rig.engine.expected_groups(form))
        request = request or (log.requests[0] if log.requests else None)
        if request is None:
            problem = "the server logged no request"
        elif not proof.ok:  # its speed would be that of another form
            request, problem = None, f"did not take effect: {'; '.join(proof.failures)}"
        elif spoiled := _no_picture(served, rig):
            request, problem = None, f"the output {spoiled}"
    evidence, failure = (failed.evidence, failed.failure) if failed else ((), None)
    return SmokeRun(form, served.command, started, request, problem, evidence, served.stopped, failure, bool(spoiled))


def _no_picture(served: Served, rig: Rig) -> str:
    """Why the output is no picture. One that cannot be decoded says nothing of the cards."""
    if not (kept := served.kept(Role.SMOKE, "")):
        return ""
    try:
        return broken(Output(kept[1].content, kept[1].media))
    except InputError as error:
        rig.say(f"the output was not looked at: {error}")
        return ""


def smoke_command(contract: Contract, form: Form, rig: Rig, port: int) -> ServeCommand:
    """The command a smoke would start, for ``--dry-run``."""
    return rig.engine.serve_command(
        form, port=port, visible_env=rig.device.visible_env(contract.cards), capture_dir=None
    )


def other_groups(contract: Contract, contracts: Path) -> list[Contract]:
    """Idle, healthy groups of the contract's size in ``contracts.json``; none when the file is not there."""
    if not contracts.exists():
        return []
    listed = read_record(contracts, ContractList).of_size(contract.size)
    return [other for other in listed if other.id != contract.id and other.state is GroupCondition.FIT]


def _runs(contract: Contract, forms: Sequence[Form], rig: Rig, lease: Lease) -> list[SmokeRun]:
    runs: list[SmokeRun] = []
    for form in forms:
        refusal = rig.engine.refusal(form)
        if refusal:
            runs.append(SmokeRun(form, ServeCommand((), {}), "", None, f"refused: {refusal}", (), None))
            continue
        runs.append(smoke_under(contract, form, rig, lease))
        if runs[-1].request is not None:
            break
        rig.say(f"{form.name}: {runs[-1].problem}")
    if not runs:
        raise ContractError("no form is given for the smoke", where=f"contract {contract.id}")
    return runs


def _measured_reference(
    contract: Contract, form: Form, rig: Rig, references: Sequence[Contract]
) -> tuple[Expectation | None, Reference | None]:
    """Smoke another group like this one. Groups of other domains come first: one residue may cover a whole domain."""
    others = [other for other in references if other.id != contract.id and comparable(contract, other)]
    if not others:
        return None, None
    topology = rig.device.read(rig.host, timeout_s=rig.settings.host.command_timeout_s).topology
    home = set(topology.domain_of(contract.cards[0]))
    for other in sorted(others, key=lambda other: (bool(home & set(other.cards)), other.cards)):
        rig.say(f"nothing tells how fast {show(contract.cards)} should be: trying {show(other.cards)} for comparison")
        try:
            with _lease(other, rig, "reference smoke", wait=False) as lease:
                quick = msgspec.structs.replace(
                    rig.settings, health=msgspec.structs.replace(rig.settings.health, on_busy=OnBusy.FAIL)
                )
                live_cards.read_fit(other, rig.host, rig.device, quick, rig.say)
                run = smoke_under(other, form, rig, lease)
        except (ContractError, LeaseError) as error:
            rig.say(str(error))
            continue
        step_s = smoke_step(run.request)
        if step_s is not None:
            source = f"cards {show(other.cards)}, a group of the same size and links"
            return Expectation(step_s, source), Reference(other.id, other.cards, step_s)
    return None, None


def _lease(contract: Contract, rig: Rig, what: str, *, wait: bool) -> Lease:
    health = rig.settings.health
    wait_s = health.busy_wait_s if wait and health.on_busy == OnBusy.WAIT else 0.0
    return rig.host.lease(contract.cards, holder={"what": f"{what} of {contract.id}"}, wait_s=wait_s)
