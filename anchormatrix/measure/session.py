"""One session: one form served once on the contract's cards in one window, and everything needed to believe it.

Lease, check that the live cards still are the contract's, start, find the steady state, alternate few and anchor
requests, capture one step, stop, look for tenants again, parse the log, prove that the form took effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from anchormatrix.engines.base import ServeCommand
from anchormatrix.engines.timing import closure_pct
from anchormatrix.errors import HostError, InputError
from anchormatrix.hosts.base import Lease
from anchormatrix.measure import live_cards, room
from anchormatrix.measure.capturing import capture_steps, fetch_capture
from anchormatrix.measure.judgement import Judgement, judge_session, ramp_of, remarks
from anchormatrix.measure.order import SessionOrder, captured_tier, session_command, why_no_capture
from anchormatrix.measure.proof import prove
from anchormatrix.measure.ramp import first_steady, warmed_up
from anchormatrix.measure.rig import Rig
from anchormatrix.measure.rows import counts_of, records_of, rows_of
from anchormatrix.measure.served import DidNotRunError, Served, stop_of
from anchormatrix.measure.smokes import suspects
from anchormatrix.records.host import HostState
from anchormatrix.records.requests import Role
from anchormatrix.records.session import (
    USABLE,
    Answer,
    Capture,
    CaptureStatus,
    Circumstances,
    Session,
    SessionStatus,
    Try,
)
from anchormatrix.records.settings.values import ANCHOR, FEW, OnBusy
from anchormatrix.store.sessions import TimedSession

_EXTRA_ROUNDS = 2  # repeats sent again when a log line was spoiled or a request failed
_READS = 3


@dataclass(frozen=True)
class Finished:
    """A session that was tried, with the text of its server's log and the output that is kept of it."""

    timed: TimedSession
    log_text: str = ""
    output: bytes = b""

    @property
    def session(self) -> Session:
        """The session's record."""
        return self.timed.session


def run_session(order: SessionOrder, rig: Rig) -> Finished:
    """Measure; again while a tenant spoils it, at most ``health.contaminated_tries`` times; again once after a mishap.

    A mishap is a port taken meanwhile, or a server that had worked and died, hung or lost its log: a second try tells
    whether that belongs to the form. A form that does not run through, proves nothing or cannot be timed is a session
    too, with its evidence. Raises :class:`ContractError` (the live host is another, the cards are suspect),
    :class:`LeaseError`, :class:`HostError` and :class:`SpaceError` (a disk is full); no result is written then.
    """
    tries: list[Try] = []
    while True:
        finished, judgement = _Try(order, rig).run()
        session = finished.session
        tries.append(Try(session.status, session.reason, session.started_at or ""))
        contaminated = session.status is SessionStatus.CONTAMINATED
        limit = rig.settings.health.contaminated_tries if contaminated else 1 + judgement.by_chance
        if len(tries) >= limit:
            whole = replace(session, tries=tuple(tries))
            return Finished(TimedSession(whole, finished.timed.requests), finished.log_text, finished.output)
        rig.say(f"measured again: {session.reason}")


class _Try:
    """One attempt at a session."""

    def __init__(self, order: SessionOrder, rig: Rig) -> None:
        self.order, self.rig = order, rig
        self.host, self.settings = rig.host, rig.settings
        self.began = datetime.now(UTC)
        self.clock = time.monotonic()
        self.warmups: list[float] = []
        self.capture = Capture(CaptureStatus.OFF, why=why_no_capture(order, rig))
        self.capture_dir: str | None = None
        self.scratch = ""

    def run(self) -> tuple[Finished, Judgement]:
        contract, form = self.order.contract, self.order.form
        refusal = self.rig.engine.refusal(form)
        if refusal:
            judgement = Judgement(SessionStatus.DID_NOT_RUN, f"the engine refuses the form: {refusal}")
            return Finished(TimedSession(self._session(judgement, ServeCommand((), {}), None))), judgement
        health = self.settings.health
        holder = {"what": f"{form.name} w{self.order.window} of {contract.id}"}
        wait_s = health.busy_wait_s if health.on_busy == OnBusy.WAIT else 0.0
        with self.host.lease(contract.cards, holder=holder, wait_s=wait_s) as lease:
            before = live_cards.read_fit(contract, self.host, self.rig.device, self.settings, self.rig.say)
            # Waiting for the lease or a tenant is no part of a session: deadlines are held against what it takes.
            self.began, self.clock = datetime.now(UTC), time.monotonic()
            suspects.clear(contract, form, self.rig, self.order.results, lease)
            return self._measure(lease, before)

    def _measure(self, lease: Lease, before: HostState) -> tuple[Finished, Judgement]:
        self.scratch = self.host.scratch(f"{self.order.contract.id}-{self.order.form.name}-w{self.order.window}")
        room.require_room(self.rig, self.scratch, self.order.results, captures=not self.capture.why)
        if not self.capture.why:
            self.capture_dir = f"{self.scratch}/capture"
        served = Served(self.rig, self._command, lease=lease, log_path=f"{self.scratch}/server.log")
        failure: DidNotRunError | None = None
        try:
            with served:
                self._requests(served)
        except DidNotRunError as error:
            failure = error
        if suspects.needs_smoke(served.stopped):
            self._suspect(f"{self.order.form.name} had to be killed")
        after = self._read_again()
        if self.capture_dir and self.capture.status in USABLE:
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
        tiers, pairs = msgspec.structs.asdict(self.settings.matrix.tiers), self.order.pairs(self.settings)
        timed: dict[str, list[float]] = {FEW: [], ANCHOR: []}
        for done in range(pairs + _EXTRA_ROUNDS):
            for tier in (FEW, ANCHOR):
                if done < pairs or len(timed[tier]) < pairs:
                    request = served.ask(Role.MEASURED, tier, tiers[tier])
                    timed[tier] += [request.step_s or 0.0] if request is not None else []
            if served.untimed > 1 or (done + 1 >= pairs and min(map(len, timed.values())) >= pairs):
                break
        if served.untimed <= 1:
            self._capture(served, timed)

    def _warm_up(self, served: Served) -> bool:
        """Send excluded requests until the ramp has ended; ``False`` when the server logs no stage times at all."""
        matrix = self.settings.matrix
        settled = False
        for number in range(1, matrix.warmups.max + 1):
            request = served.ask(Role.RAMP, FEW, matrix.tiers.few)
            if request is not None and request.step_s is not None:
                self.warmups.append(request.step_s)
            if number > 1 and not self.warmups:
                return False
            settled = warmed_up(self.warmups, matrix.warmups.steady_pct)
            if settled and number >= matrix.warmups.min:
                break
        self.rig.say(f"{len(self.warmups)} excluded requests, {'steady' if settled else 'not steady'}")
        return True

    def _capture(self, served: Served, timed: Mapping[str, Sequence[float]]) -> None:
        """Capture in a request of its own, after the repeats: the steady state is behind it by then."""
        tier = captured_tier(self.order, self.settings)
        if self.capture_dir is None or tier is None:
            return
        steady = first_steady(self.warmups, self.settings.matrix.warmups.steady_pct) is not None
        made, self.capture_dir = capture_steps(served, self.rig, tier, self.capture_dir, timed[tier])
        why = f"request {made.request}, after {len(self.warmups)} excluded requests and the repeats"
        if made.status is CaptureStatus.CAPTURED and not steady:
            reason = "the ramp did not settle: only seconds count, no share"
            made = replace(made, status=CaptureStatus.ON_RAMP, reason=reason)
        self.capture = replace(made, why=why, ranks=self.rig.engine.limits().captured_ranks)

    def _judged(
        self, served: Served, failure: DidNotRunError | None, before: HostState, after: HostState
    ) -> tuple[Finished, Judgement]:
        text, log = served.log_text(), served.log()
        room.require_written(self.rig, self.scratch, (text, self.capture.reason))
        rows = rows_of(served.sent, log.requests)
        proof = prove(log, self.rig.engine.expected_groups(self.order.form), served.peaks_mb)
        judgement = judge_session(
            self.order,
            self.settings,
            failure=failure,
            log=log,
            rows=rows,
            proof=proof,
            after=after,
            own_pids=self.host.own_pids(),
        )
        measured = judgement.status is SessionStatus.MEASURED
        if judgement.suspect:
            self._suspect(judgement.suspect)
        kept = served.kept(Role.MEASURED, ANCHOR)
        steady_pct = self.settings.matrix.warmups.steady_pct
        ramp = ramp_of(rows, steady_pct)
        closure = closure_pct(row.timed for row in rows if row.timed is not None)
        session = replace(
            self._session(judgement, served.command, failure),
            proof=proof,
            ramp=ramp,
            log=counts_of(log, rows, closure),
            findings=remarks(rows, ramp, closure, proof, log, steady_pct, self.rig.engine.caution) if measured else (),
            capture=self.capture,
            output=Answer(kept[0], kept[1].media) if kept else None,
            stop=stop_of(served.stopped),
            circumstances=self._circumstances(before, after),
        )
        output = kept[1].content if kept else b""
        return Finished(TimedSession(session, records_of(rows)), text, output), judgement

    def _session(self, judgement: Judgement, command: ServeCommand, failure: DidNotRunError | None) -> Session:
        """What is known of every attempt, also of one that started nothing."""
        return Session(
            contract=self.order.contract.id,
            form=self.order.form.name,
            window=self.order.window,
            status=judgement.status,
            reason=judgement.reason,
            evidence=failure.evidence if failure else (),
            failure=failure.failure if failure else None,
            command=tuple(command.argv),
            env=dict(command.env),
            started_at=self.began.isoformat(timespec="seconds"),
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - self.clock, 3),
            tries=(),
            generation=self.order.generation,
            night=self.order.night,
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

    def _circumstances(self, before: HostState, after: HostState) -> Circumstances:
        cards, contract = self.order.contract.cards, self.order.contract
        return Circumstances(
            before=live_cards.seen(cards, before),
            after=live_cards.seen(cards, after),
            load=live_cards.load(self.host, self.settings),
            versions={
                **dict(before.versions),
                "driver": contract.driver,
                "toolkit": contract.toolkit,
                "framework": contract.framework,
                "framework_version": contract.framework_version,
            },
        )
