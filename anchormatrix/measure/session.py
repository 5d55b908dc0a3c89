"""One session: one form served once on the contract's cards in one window, and everything needed to believe it.

Lease, check that the live cards still are the contract's, start, find the steady state, alternate few and anchor
requests, capture one step, stop, look for tenants again, parse the log, prove that the form took effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from anchormatrix.engines.base import ServeCommand
from anchormatrix.errors import HostError, InputError
from anchormatrix.hosts.base import Lease
from anchormatrix.measure import circumstances, suspects
from anchormatrix.measure.capturing import Capture, fetch_capture
from anchormatrix.measure.order import SessionOrder, captures, session_command
from anchormatrix.measure.outcome import Outcome, findings, outcome_of, ramp_of
from anchormatrix.measure.ramp import first_steady
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.rows import Row, Session, aligned
from anchormatrix.measure.served import DidNotRunError, Served, stop_as_dict
from anchormatrix.measure.serverlog.parse import closure_pct, parse_serve_log
from anchormatrix.measure.serverlog.proof import prove
from anchormatrix.records.host import HostState
from anchormatrix.records.settings import ANCHOR, FEW

_EXTRA_ROUNDS = 2  # repeats sent again when a log line was spoiled or a request failed
_READS = 3


def run_session(order: SessionOrder, rig: Rig) -> Session:
    """Measure; again while a tenant spoils it, at most ``health.contaminated_tries`` times; again once after a mishap.

    A mishap is a port taken meanwhile, or a server that had worked and died, hung or lost its log: a second try tells
    whether that belongs to the form. A form that does not run through, proves nothing or cannot be timed is a session
    too, with its evidence. Raises :class:`ContractError` (the live host is another, the cards are suspect),
    :class:`LeaseError` and :class:`HostError` (also for a full disk on the host); no result is written then.
    """
    tries: list[Mapping[str, Any]] = []
    while True:
        session, outcome = _Try(order, rig).run()
        tries.append({"status": session.status, "reason": session.reason, "started_at": session.details["started_at"]})
        limit = rig.settings.health.contaminated_tries if session.status == "contaminated" else 1 + outcome.by_chance
        if len(tries) >= limit:
            return replace(session, tries=tuple(tries))
        rig.say(f"measured again: {session.reason}")


class _Try:
    """One attempt at a session."""

    def __init__(self, order: SessionOrder, rig: Rig) -> None:
        self.order, self.rig = order, rig
        self.host, self.settings = rig.host, rig.settings
        self.began = datetime.now(UTC)
        self.clock = time.monotonic()
        self.stopped_early = ""
        self.warmups: list[float] = []
        why = "only the first window captures" if order.window > 1 else "capture.enabled is off"
        self.capture = Capture("off", why=why)
        self.capture_dir: str | None = None
        self.scratch = ""

    def run(self) -> tuple[Session, Outcome]:
        contract, form = self.order.contract, self.order.form
        refusal = self.rig.engine.refusal(form)
        if refusal:
            outcome = Outcome("did_not_run", f"the engine refuses the form: {refusal}")
            return self._session(outcome, ServeCommand((), {}), (), (), "", self._times()), outcome
        health = self.settings.health
        holder = {"what": f"{form.name} w{self.order.window} of {contract.id}"}
        wait_s = health.busy_wait_s if health.on_busy == "wait" else 0.0
        with self.host.lease(contract.cards, holder=holder, wait_s=wait_s) as lease:
            before = circumstances.read_fit(contract, self.host, self.rig.device, self.settings, self.rig.say)
            suspects.clear(contract, form, self.rig, self.order.results, lease)
            return self._measure(lease, before)

    def _measure(self, lease: Lease, before: HostState) -> tuple[Session, Outcome]:
        self.scratch = self.host.scratch(f"{self.order.contract.id}-{self.order.form.name}-w{self.order.window}")
        if captures(self.order, self.settings):
            self.capture_dir = f"{self.scratch}/capture"
        served = Served(self.host, self.settings, self._command, lease=lease, log_path=f"{self.scratch}/server.log")
        failure: DidNotRunError | None = None
        try:
            with served:
                self._requests(served)
        except DidNotRunError as error:
            failure = error
        if suspects.needs_smoke(served.stopped):
            self._suspect(f"{self.order.form.name} had to be killed")
        after = self._read_again()
        if self.capture_dir and self.capture.status in ("captured", "on_ramp"):
            self.capture = fetch_capture(self.capture, self.host, self.capture_dir, self.order.folder, self.settings)
        return self._judged(served, failure, before, after)

    def _command(self, port: int) -> ServeCommand:
        command = session_command(self.order, self.rig, port=port, capture_dir=self.capture_dir)
        self.rig.say(f"starting {' '.join(command.argv)}")
        return command

    def _requests(self, served: Served) -> None:
        """Warm up, measure, capture. The order few, anchor, few, anchor … lets both tiers share any drift."""
        if not self._warm_up(served):
            return
        tiers, pairs = self.settings.matrix.tiers, self.order.pairs(self.settings)
        timed: dict[str, list[float]] = {FEW: [], ANCHOR: []}
        for done in range(pairs + _EXTRA_ROUNDS):
            if done == pairs and self.capture.request is None:
                self._capture(served)  # an environment-triggered capture is bound to this place
            for tier in (FEW, ANCHOR):
                if done < pairs or len(timed[tier]) < pairs:
                    request = served.ask("measured", tier, tiers[tier])
                    timed[tier] += [request.step_s or 0.0] if request is not None else []
            if served.untimed > 1 or (done + 1 >= pairs and min(map(len, timed.values())) >= pairs):
                break
            if self._stops(timed[ANCHOR]):
                break
        if self.capture.request is None and served.untimed <= 1:
            self._capture(served)

    def _stops(self, anchor_s: list[float]) -> bool:
        """Whether the adaptive design ends the session here; never when the place of a capture is fixed."""
        if self.order.stop is None or self._capture_is_fixed():
            return False
        self.stopped_early = self.order.stop([step for step in anchor_s if step])
        return bool(self.stopped_early)

    def _capture_is_fixed(self) -> bool:
        """A capture that the environment triggers is bound to a request number."""
        return self.capture_dir is not None and self.settings.capture.trigger == "env"

    def _warm_up(self, served: Served) -> bool:
        """Send excluded requests until neighbours agree; ``False`` when the server logs no stage times at all."""
        matrix = self.settings.matrix
        fixed = self._capture_is_fixed()  # then the warm-ups before it are all sent
        settled = False
        for number in range(1, matrix.warmups.max + 1):
            request = served.ask("ramp", FEW, matrix.tiers[FEW])
            if request is not None and request.step_s is not None:
                self.warmups.append(request.step_s)
            if number > 1 and not self.warmups:
                return False
            settled = first_steady(self.warmups, matrix.warmups.steady_pct) is not None
            if settled and number >= matrix.warmups.min and not fixed:
                break
        self.rig.say(f"{len(self.warmups)} excluded requests, {'steady' if settled else 'not steady'}")
        return True

    def _capture(self, served: Served) -> None:
        """Capture one step in a request of its own, after the repeats: the steady state is behind it by then."""
        if self.capture_dir is None:
            return
        few = self.settings.matrix.tiers[FEW]
        steps, number = self.rig.engine.capture_request_steps(few), len(served.sent) + 1
        by_environment = self.settings.capture.trigger == "env"
        problem = None if by_environment else served.client.start_profile()
        if problem is None:
            try:
                served.ask("capture", FEW if steps == few else "", steps)
                problem = None if by_environment else served.client.stop_profile()
            except DidNotRunError as error:  # the repeats are measured already
                problem = str(error)
        steady = first_steady(self.warmups, self.settings.matrix.warmups.steady_pct) is not None
        why = f"request {number}, after {len(self.warmups)} excluded requests and the repeats"
        if problem:
            self.capture = Capture("failed", number, why, problem)
        elif not steady:
            self.capture = Capture("on_ramp", number, why, "the ramp did not settle: only seconds count, no share")
        else:
            self.capture = Capture("captured", number, why)

    def _judged(
        self, served: Served, failure: DidNotRunError | None, before: HostState, after: HostState
    ) -> tuple[Session, Outcome]:
        text = served.log_text()
        log = parse_serve_log(text)
        rows = aligned(served.sent, log.requests)
        proof = prove(log, self.rig.engine.expected_groups(self.order.form))
        outcome = outcome_of(
            self.order,
            self.settings,
            failure=failure,
            log=log,
            rows=rows,
            proof=proof,
            after=after,
            own_pids=self.host.own_pids(),
        )
        if outcome.status != "measured":
            circumstances.require_room(self.host, self.scratch, self.settings)
        if outcome.suspect:
            self._suspect(outcome.suspect)
        ramp = ramp_of(self.warmups, rows, self.settings.matrix.warmups.steady_pct)
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
            "findings": findings(rows, ramp, closure, proof) if outcome.status == "measured" else [],
            "stopped_early": self.stopped_early,
            "capture": self.capture.as_dict(),
            "stop": stop_as_dict(served.stopped),
            "circumstances": self._circumstances(before, after),
        }
        evidence = failure.evidence if failure else ()
        return self._session(outcome, served.command, evidence, rows, text, details), outcome

    def _session(
        self,
        outcome: Outcome,
        command: ServeCommand,
        evidence: tuple[str, ...],
        rows: tuple[Row, ...],
        text: str,
        details: Mapping[str, Any],
    ) -> Session:
        return Session(
            contract=self.order.contract.id,
            form=self.order.form.name,
            window=self.order.window,
            status=outcome.status,
            reason=outcome.reason,
            evidence=evidence,
            command=command.argv,
            env=command.env,
            rows=rows,
            details=details,
            log_text=text,
        )

    def _read_again(self) -> HostState:
        """Read the cards after the session; a vendor's tool that stumbles once must not cost a measurement."""
        timeout_s = self.settings.host.command_timeout_s
        for _ in range(_READS - 1):
            try:
                return self.rig.device.read(self.host, timeout_s=timeout_s)
            except (HostError, InputError) as error:
                self.rig.say(f"read again: {error}")
                time.sleep(1.0)
        return self.rig.device.read(self.host, timeout_s=timeout_s)

    def _suspect(self, what: str) -> None:
        suspects.mark(self.order.contract, self.order.results, what)

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
