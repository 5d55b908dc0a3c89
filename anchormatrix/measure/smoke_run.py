"""Running a smoke: one short request on the real cards of a contract, before anything is measured on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anchormatrix.engines.base import ServeCommand
from anchormatrix.errors import BusyError, ContractError, LeaseError
from anchormatrix.hosts.base import Lease, StopRecord
from anchormatrix.measure import circumstances
from anchormatrix.measure.expectation import History, comparable, expected_step
from anchormatrix.measure.residue import RESIDUE, damaged_within
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.served import DidNotRunError, Served, stop_as_dict
from anchormatrix.measure.serverlog.parse import Request, parse_serve_log
from anchormatrix.measure.serverlog.proof import prove
from anchormatrix.measure.smoke import Expectation, Finding, Smoke, judge_smoke, smoke_step
from anchormatrix.planning.groups import show
from anchormatrix.records.contract import Contract, ContractList, GroupCondition
from anchormatrix.records.form import Form
from anchormatrix.records.host import HostState
from anchormatrix.store.codec import read_record


@dataclass(frozen=True)
class SmokeRun:
    """What one served smoke brought: a request, or why there is none."""

    form: Form
    command: ServeCommand
    started_at: str
    request: Request | None
    problem: str
    evidence: tuple[str, ...]
    stopped: StopRecord | None


def run_smoke(
    contract: Contract,
    forms: Sequence[Form],
    rig: Rig,
    results: Path,
    *,
    history: History | None = None,
    references: Sequence[Contract] = (),
    night: str | None = None,
) -> tuple[Smoke, StopRecord | None]:
    """Smoke a contract's group and judge it; also returns how the server ended.

    The first form that runs and takes effect counts: a form that cannot start says nothing about the cards. When
    nothing tells how fast the group should be, the first usable one of ``references`` (other groups like it) is smoked
    as well. When no such group is there, one that holds cards which smaller groups' smokes (of ``night``) found in the
    residue state is rejected, too.
    A tenant who does not leave in time rejects the group, so that the sizes without one are measured all the same.
    Raises :class:`ContractError`, :class:`LeaseError` and :class:`HostError` when the group cannot be tried at all.
    """
    with _lease(contract, rig, "smoke", wait=True) as lease:
        try:
            state = circumstances.read_fit(contract, rig.host, rig.device, rig.settings, rig.say)
        except BusyError as error:
            if rig.settings.health.on_busy == "fail":
                raise
            return _occupied(contract, error), None
        suspect = lease.suspect
        runs = _runs(contract, forms, rig, lease)
        after = rig.device.read(rig.host, timeout_s=rig.settings.host.command_timeout_s)
    run = runs[-1]
    smoke = _judged(contract, runs, state, after, rig, results, history=history, references=references, night=night)
    if suspect and smoke.status != "rejected" and run.stopped is not None and run.stopped.how != "sigkill":
        with _lease(contract, rig, "trust after its smoke", wait=True) as lease:
            lease.trust()
    return smoke, run.stopped


def _judged(
    contract: Contract,
    runs: Sequence[SmokeRun],
    before: HostState,
    after: HostState,
    rig: Rig,
    results: Path,
    *,
    history: History | None,
    references: Sequence[Contract],
    night: str | None,
) -> Smoke:
    """The smoke that the forms tried amount to, with the cards as they were before and after it."""
    run = runs[-1]
    sick = circumstances.unfit(contract.cards, after)
    expectation: Expectation | None = None
    details: dict[str, Any] = {"tried": [item.form.name for item in runs], "stop": dict(stop_as_dict(run.stopped))}
    if run.request is not None:
        expectation = expected_step(contract, run.form.name, results, rig.settings, history)
        if expectation is None:
            expectation, reference = _measured_reference(contract, run.form, rig, references)
            details["reference"] = reference
    smoke = judge_smoke(
        contract.id,
        run.request,
        expectation,
        rig.settings.smoke,
        warned=circumstances.warned(contract.cards, before),
        cards=contract.cards,
    )
    if run.request is None:
        missed = tuple(Finding("did_not_run", f"{item.form.name}: {item.problem}") for item in runs)
        smoke = replace(smoke, status="rejected", findings=missed)
    if smoke.status == "unverified":
        smoke = _holding_damage(smoke, contract, results, night)
    if sick:
        finding = Finding("warning_confirmed", f"after the smoke {'; '.join(sick)}")
        smoke = replace(smoke, status="rejected", findings=(*smoke.findings, finding))
    return replace(
        smoke,
        form=run.form.name,
        command=run.command.argv,
        started_at=run.started_at,
        evidence=run.evidence,
        details=details,
    )


def _holding_damage(smoke: Smoke, contract: Contract, results: Path, night: str | None) -> Smoke:
    """Reject a group of unknown speed that holds damaged cards: all its ranks wait for the slowest."""
    damaged = damaged_within(contract, results, night=night)
    if not damaged:
        return smoke
    text = f"it holds damaged cards: {'; '.join(item.text for item in damaged)}; reset the driver or use another group"
    return replace(smoke, status="rejected", findings=(*smoke.findings, Finding(RESIDUE, text)))


def _occupied(contract: Contract, error: BusyError) -> Smoke:
    finding = Finding("busy", f"{error.where}: {error.what}")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return Smoke(contract.id, "rejected", (finding,), None, None, started_at=started)


def smoke_under(contract: Contract, form: Form, rig: Rig, lease: Lease) -> SmokeRun:
    """Serve one form under a lease that is held already, send one request of ``smoke.steps`` steps, stop."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    scratch = rig.host.scratch(f"{contract.id}-smoke")

    def command(port: int) -> ServeCommand:
        made = rig.engine.serve_command(
            form, port=port, visible_env=rig.device.visible_env(contract.cards), capture_dir=None
        )
        rig.say(f"starting {' '.join(made.argv)}")
        return made

    served = Served(rig.host, rig.settings, command, lease=lease, log_path=f"{scratch}/server.log")
    request: Request | None = None
    problem, evidence = "", tuple[str, ...]()
    try:
        with served:
            request = served.ask("smoke", "", rig.settings.smoke.steps)
    except DidNotRunError as error:
        problem, evidence = str(error), error.evidence
    if not problem:
        log = parse_serve_log(served.log_text())
        proof = prove(log, rig.engine.expected_groups(form))
        request = request or (log.requests[0] if log.requests else None)
        if request is None:
            problem = "the server logged no request"
        elif not proof.ok:  # its speed would be that of another form
            request, problem = None, f"did not take effect: {'; '.join(proof.failures)}"
    return SmokeRun(form, served.command, started, request, problem, evidence, served.stopped)


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
) -> tuple[Expectation | None, dict[str, Any] | None]:
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
                quick = replace(rig.settings, health=replace(rig.settings.health, on_busy="fail"))
                circumstances.read_fit(other, rig.host, rig.device, quick, rig.say)
                run = smoke_under(other, form, rig, lease)
        except (ContractError, LeaseError) as error:
            rig.say(str(error))
            continue
        step_s = smoke_step(run.request)
        if step_s is not None:
            source = f"cards {show(other.cards)}, a group of the same size and links"
            return Expectation(step_s, source), {"contract": other.id, "cards": list(other.cards), "step_s": step_s}
    return None, None


def _lease(contract: Contract, rig: Rig, what: str, *, wait: bool) -> Lease:
    health = rig.settings.health
    wait_s = health.busy_wait_s if wait and health.on_busy == "wait" else 0.0
    return rig.host.lease(contract.cards, holder={"what": f"{what} of {contract.id}"}, wait_s=wait_s)
