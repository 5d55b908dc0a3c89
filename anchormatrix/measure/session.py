"""One session: one form served once on the contract's cards in one window, and everything needed to believe it.

Lease, check that the live cards still are the contract's, start, find the steady state, alternate few and anchor
requests, capture one step, stop, look for tenants again, parse the log, prove that the form took effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from anchormatrix.contract import Contract
from anchormatrix.engines.base import ServeCommand
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.forms import Form
from anchormatrix.hosts.base import Lease
from anchormatrix.measure import circumstances, suspects
from anchormatrix.measure.capturing import Capture, fetch_capture
from anchormatrix.measure.proof import Proof, prove
from anchormatrix.measure.ramp import first_steady
from anchormatrix.measure.records import Row, Session, aligned
from anchormatrix.measure.serve_log import ServeLog, closure_pct, parse_serve_log
from anchormatrix.measure.served import DidNotRunError, Served, stop_as_dict
from anchormatrix.measure.smoke_run import Rig
from anchormatrix.settings import Settings
from anchormatrix.topology import HostState

FEW, ANCHOR = "few", "anchor"
_EXTRA_ROUNDS = 2  # repeats sent again when a log line was spoiled
_CLOSURE_LIMIT_PCT = 5.0


@dataclass(frozen=True)
class SessionOrder:
    """What to measure. ``results`` is the results folder; a capture goes to ``<results>/<contract>/<form>/capture``."""

    contract: Contract
    form: Form
    window: int
    results: Path

    @property
    def folder(self) -> Path:
        """The form's folder."""
        return self.results / self.contract.id / self.form.name


def run_session(order: SessionOrder, rig: Rig) -> Session:
    """Measure once, and again while a tenant spoils it, at most ``health.contaminated_tries`` times.

    A form that does not run through, proves nothing or cannot be timed is a session too, with its evidence. Raises
    :class:`ContractError` (the live host is another), :class:`LeaseError` and :class:`HostError`; nothing is left then.
    """
    tries: list[Mapping[str, Any]] = []
    while True:
        session = _Try(order, rig).run()
        tries.append({"status": session.status, "reason": session.reason, "started_at": session.details["started_at"]})
        if session.status != "contaminated" or len(tries) >= max(1, rig.settings.health.contaminated_tries):
            return Session(**{**vars(session), "tries": tuple(tries)})
        rig.say(f"measured again: {session.reason}")


def session_command(order: SessionOrder, rig: Rig) -> ServeCommand:
    """The command a session would start, for ``--dry-run``. Raises :class:`EngineError` when the form is refused."""
    settings = rig.settings
    folder = f"{settings.host.scratch_dir}/capture" if captures(order, settings) else None
    request = capture_request(settings) if folder and settings.capture.trigger == "env" else None
    return rig.engine.serve_command(
        order.form,
        port=rig.host.free_port(),
        visible_env=rig.device.visible_env(order.contract.cards),
        capture_dir=folder,
        capture_request=request,
    )


def session_requests(order: SessionOrder, rig: Rig) -> list[str]:
    """The requests of a session in words, for ``--dry-run``."""
    settings = rig.settings
    few, anchor = settings.matrix.tiers[FEW], settings.matrix.tiers[ANCHOR]
    warm = settings.matrix.warmups
    lines = [
        f"{warm.min} to {warm.max} excluded requests of {few} steps, until neighbours agree to {warm.steady_pct:g} %"
    ]
    lines += [f"{settings.matrix.repeats} times: {few} steps, then {anchor} steps"]
    if captures(order, settings):
        lines.append(f"1 excluded request of {rig.engine.capture_request_steps(few)} steps under the profiler")
    return lines


def captures(order: SessionOrder, settings: Settings) -> bool:
    """Whether the session captures: only the first window does."""
    return settings.capture.enabled and order.window == 1


def capture_request(settings: Settings) -> int:
    """The number, from 1, of the captured request when the environment triggers it: it must be known at the launch."""
    return settings.matrix.warmups.max + 2 * settings.matrix.repeats + 1


class _Try:
    """One attempt at a session."""

    def __init__(self, order: SessionOrder, rig: Rig) -> None:
        self.order, self.rig = order, rig
        self.host, self.device, self.engine, self.settings = rig.host, rig.device, rig.engine, rig.settings
        self.began = datetime.now(UTC)
        self.clock = time.monotonic()
        self.warmups: list[float] = []
        self.capture = Capture(
            "off", why="only the first window captures" if order.window > 1 else "capture.enabled is off"
        )
        self.capture_dir: str | None = None

    def run(self) -> Session:
        contract = self.order.contract
        refusal = self.engine.refusal(self.order.form)
        if refusal:
            return self._failed(f"the engine refuses the form: {refusal}", (), ServeCommand((), {}), {})
        holder = {"what": f"{self.order.form.name} w{self.order.window} of {contract.id}"}
        wait_s = self.settings.health.busy_wait_s if self.settings.health.on_busy == "wait" else 0.0
        with self.host.lease(contract.cards, holder=holder, wait_s=wait_s) as lease:
            before = circumstances.read_fit(contract, self.host, self.device, self.settings, self.rig.say)
            suspects.clear(contract, self.order.form, self.rig, self.order.results, lease)
            return self._measure(lease, before)

    def _measure(self, lease: Lease, before: HostState) -> Session:
        scratch = self.host.scratch(f"{self.order.contract.id}-{self.order.form.name}-w{self.order.window}")
        if captures(self.order, self.settings):
            self.capture_dir = f"{scratch}/capture"
        served = Served(self.host, self.settings, self._command, lease=lease, log_path=f"{scratch}/server.log")
        failure: AnchorMatrixError | None = None
        try:
            with served:
                self._requests(served)
        except DidNotRunError as error:
            failure = error
        after = self.device.read(self.host, timeout_s=self.settings.host.command_timeout_s)
        if served.stopped is not None and suspects.needs_smoke(served.stopped):
            what = f"{self.order.form.name} in window {self.order.window}"
            suspects.mark(self.order.contract, self.order.results, served.stopped, what)
        text = served.log_text()
        log = parse_serve_log(text)
        rows = aligned(served.sent, log.requests)
        if self.capture_dir and self.capture.status in ("captured", "on_ramp"):
            self.capture = fetch_capture(self.capture, self.host, self.capture_dir, self.order.folder, self.settings)
        return self._session(served, failure, log, rows, text, before, after)

    def _command(self, port: int) -> ServeCommand:
        request = capture_request(self.settings) if self.settings.capture.trigger == "env" else None
        command = self.engine.serve_command(
            self.order.form,
            port=port,
            visible_env=self.device.visible_env(self.order.contract.cards),
            capture_dir=self.capture_dir,
            capture_request=request if self.capture_dir else None,
        )
        self.rig.say(f"starting {' '.join(command.argv)}")
        return command

    def _requests(self, served: Served) -> None:
        """Warm up, measure, capture. The order few, anchor, few, anchor … lets both tiers share any drift."""
        matrix, few = self.settings.matrix, self.settings.matrix.tiers[FEW]
        fixed = self.capture_dir is not None and self.settings.capture.trigger == "env"
        for number in range(1, matrix.warmups.max + 1):
            request = served.ask("ramp", FEW, few)
            if request is not None and request.step_s is not None:
                self.warmups.append(request.step_s)
            if number > 1 and not self.warmups:
                return  # this server logs no stage times: nothing can be measured
            settled = first_steady(self.warmups, matrix.warmups.steady_pct) is not None
            if settled and number >= matrix.warmups.min and not fixed:
                break
        self.rig.say(f"{len(self.warmups)} excluded requests, {'steady' if settled else 'not steady'}")
        timed = {FEW: 0, ANCHOR: 0}
        for done in range(matrix.repeats + _EXTRA_ROUNDS):
            if done == matrix.repeats:
                self._capture(served)
            for tier in (FEW, ANCHOR):
                if done < matrix.repeats or timed[tier] < matrix.repeats:
                    request = served.ask("measured", tier, matrix.tiers[tier])
                    timed[tier] += request is not None
            if done + 1 >= matrix.repeats and min(timed.values()) >= matrix.repeats:
                break
            if done + 1 >= 2 and not any(timed.values()):
                return  # the log has stopped
        if self.capture.status == "off":
            self._capture(served)

    def _capture(self, served: Served) -> None:
        """Capture one step in a request of its own, after the repeats: the steady state is behind it by then."""
        if self.capture_dir is None:
            return
        steps = self.engine.capture_request_steps(self.settings.matrix.tiers[FEW])
        number = len(served.sent) + 1
        by_environment = self.settings.capture.trigger == "env"
        problem = None if by_environment else served.client.start_profile()
        if problem is None:
            try:
                served.ask("capture", FEW if steps == self.settings.matrix.tiers[FEW] else "", steps)
                problem = None if by_environment else served.client.stop_profile()
            except DidNotRunError as error:  # the repeats are measured already
                problem = str(error)
        steady = first_steady(self.warmups, self.settings.matrix.warmups.steady_pct) is not None
        why = f"request {number}, after {len(self.warmups)} excluded requests and the repeats"
        if problem:
            self.capture = Capture("failed", request=number, why=why, reason=problem)
        elif not steady:
            self.capture = Capture("on_ramp", number, why, "the ramp did not settle: only seconds count, no share")
        else:
            self.capture = Capture("captured", number, why)

    def _session(
        self,
        served: Served,
        failure: AnchorMatrixError | None,
        log: ServeLog,
        rows: tuple[Row, ...],
        text: str,
        before: HostState,
        after: HostState,
    ) -> Session:
        proof = prove(log, self.engine.expected_groups(self.order.form))
        ramp = self._ramp(rows)
        status, reason = self._status(failure, log, rows, proof, after)
        closure = closure_pct(row.timed for row in rows if row.timed is not None)
        details = {
            **self._times(),
            "proof": proof.as_dict(),
            "ramp": ramp,
            "log": {
                "lines": log.lines,
                "unusable_lines": log.unusable_lines,
                "stage_lines": log.stage_lines,
                "lost_responses": sum(row.status == "lost" for row in rows),
                "denominators": log.denominators,
                "closure_pct": closure,
            },
            "findings": findings(rows, ramp, closure, proof),
            "capture": self.capture.as_dict(),
            "stop": stop_as_dict(served.stopped),
            "circumstances": self._circumstances(before, after),
        }
        evidence = failure.evidence if isinstance(failure, DidNotRunError) else ()
        command = served.command
        return Session(
            self.order.contract.id, self.order.form.name, self.order.window, status, reason, evidence,
            command.argv, command.env, rows, details, log_text=text,
        )  # fmt: skip

    def _status(
        self,
        failure: AnchorMatrixError | None,
        log: ServeLog,
        rows: tuple[Row, ...],
        proof: Proof,
        after: HostState,
    ) -> tuple[str, str]:
        """Tenants and sick cards first: they may be why a form did not run through."""
        cards, static_mb = self.order.contract.cards, self.settings.health.static_memory_mb
        others = circumstances.tenants(cards, after, self.host.own_pids(), static_mb)
        if others:
            return "contaminated", f"somebody else came while it was measured: {'; '.join(others)}"
        sick = [*circumstances.unfit(cards, after), *circumstances.changed(self.order.contract, after)]
        if sick:
            return "void", f"after the session: {'; '.join(sick)}"
        if failure is not None:
            return "did_not_run", str(failure)
        if not log.stage_lines:
            return "unmeasurable", (
                "the server logs no stage times, although its pipeline profiler is on: this model cannot be measured"
            )
        if not proof.ok:
            return "void", f"the form did not take effect: {'; '.join(proof.failures)}"
        if not any(row.step_s for row in rows if row.sent.role == "measured"):
            return "unmeasurable", "the log holds no whole timing of a measured request"
        return "measured", ""

    def _ramp(self, rows: tuple[Row, ...]) -> dict[str, Any]:
        """Whether the steady state was reached before the repeats, and still held in them."""
        limit = self.settings.matrix.warmups.steady_pct
        start = first_steady(self.warmups, limit)
        requests = sum(row.sent.role == "ramp" for row in rows)
        if start is None:
            why = f"no two neighbours of {requests} requests agreed to {limit:g} % up to the last"
            return {"requests": requests, "first_steady": None, "steady": False, "why": why}
        repeats = [row.step_s for row in rows if row.sent.role == "measured" and row.sent.tier == FEW and row.step_s]
        moved = (median(repeats) / median(self.warmups[start:]) - 1) * 100 if repeats else 0.0
        steady = moved <= limit
        why = f"from request {start + 1} on neighbours agree to {limit:g} %"
        if not steady:
            why += f", but the repeats are {moved:.1f} % slower: the ramp went on"
        return {"requests": requests, "first_steady": start + 1, "steady": steady, "why": why}

    def _times(self) -> dict[str, Any]:
        return {
            "started_at": self.began.isoformat(timespec="seconds"),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - self.clock, 3),
        }

    def _circumstances(self, before: HostState, after: HostState) -> dict[str, Any]:
        cards, contract = self.order.contract.cards, self.order.contract
        return {
            "before": circumstances.reading(cards, before),
            "after": circumstances.reading(cards, after),
            "load": circumstances.load(self.host, self.settings),
            "versions": {
                **dict(before.versions),
                "driver": contract.driver,
                "toolkit": contract.toolkit,
                "framework": contract.framework,
                "framework_version": contract.framework_version,
            },
        }

    def _failed(
        self, reason: str, evidence: tuple[str, ...], command: ServeCommand, details: Mapping[str, Any]
    ) -> Session:
        order = self.order
        return Session(
            order.contract.id, order.form.name, order.window, "did_not_run", reason, evidence, command.argv,
            command.env, (), {**self._times(), **details},
        )  # fmt: skip


def findings(
    rows: tuple[Row, ...], ramp: Mapping[str, Any], closure: float | None, proof: Proof
) -> list[dict[str, str]]:
    """What a reader must know of a session beside its numbers."""
    found = []
    for steps in sorted({row.sent.steps for row in rows}):
        prints = {row.sent.response.fingerprint for row in rows if row.sent.steps == steps} - {None}
        if len(prints) > 1:
            text = f"{len(prints)} different outputs for {steps} steps with the same seed"
            found.append({"kind": "output_differs", "text": text})
    if not ramp["steady"]:
        found.append({"kind": "ramp", "text": ramp["why"]})
    if closure is not None and closure > _CLOSURE_LIMIT_PCT:
        text = f"forward differs from diffuse + decode + encode by {closure:.1f} %"
        found.append({"kind": "closure", "text": text})
    found += [{"kind": "unproven", "text": text} for text in proof.unproven]
    return found
