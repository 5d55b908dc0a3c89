"""The server starts of one host: each is simulated once, and every rule that asks for it reads the same log.

Which start of a form this is follows from its window alone, so what one rule leaves out changes nothing for another.
The requests of a start are served as far as somebody asks; a shorter session is the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from anchormatrix.engines.client import Response
from anchormatrix.engines.vllm_omni.launch import expected_groups
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.causes import failure_of
from anchormatrix.measure.live_cards import tenants, unfit
from anchormatrix.measure.proof import prove
from anchormatrix.measure.ramp import judge_ramp, warmed_up
from anchormatrix.measure.rows import records_of, rows_of
from anchormatrix.measure.served import Sent
from anchormatrix.records.attribution import Attribution
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import parse_form
from anchormatrix.records.requests import RequestStatus, Role
from anchormatrix.records.session import Ramp, Session, SessionStatus
from anchormatrix.store.sessions import TimedSession
from campaigns.bench import HEALTH, TIERS, read_host
from campaigns.hosts import Experiment
from virtualhost.host.state import HostState
from virtualhost.server.exchange import Outcome, parse_split
from virtualhost.server.serving import ServingSession

REPEATS = 3
WARMUPS_MIN, WARMUPS_MAX, STEADY_PCT = 4, 16, 3.0
Stop = Callable[[tuple[float, ...]], str]  # the anchor steps so far -> why the session ends here, or nothing


@dataclass(frozen=True)
class Measured:
    """A session as a rule asked for it, and its virtual seconds from the start to the stop."""

    timed: TimedSession
    seconds: float


def _go_on(_: tuple[float, ...]) -> str:
    return ""


@dataclass
class Starts:
    """The starts of a host's forms on the cards of a contract. ``attributions`` are those of first starts, by form and
    by the requests before the profiled one."""

    experiment: Experiment
    contract: Contract
    attributions: dict[tuple[str, int], Attribution] = field(default_factory=dict)
    _starts: dict[tuple[str, int, int], _Start] = field(default_factory=dict)
    _sessions: dict[tuple[str, int, int], Measured] = field(default_factory=dict)

    def session(self, form: str, window: int, *, repeats: int = REPEATS, stop: Stop = _go_on) -> Measured:
        """The session of a form in a window with so many few–anchor pairs; again while a tenant spoils it.

        ``stop`` may end it after any anchor request.
        """
        key = form, window, repeats
        if stop is _go_on and key in self._sessions:
            return self._sessions[key]
        seconds = 0.0
        for attempt in range(HEALTH.contaminated_tries):
            start = self._starts.setdefault((form, window, attempt), _Start(self, form, window, attempt))
            found = start.session(repeats, stop)
            seconds += found.seconds
            if found.timed.session.status is not SessionStatus.CONTAMINATED:
                break
        found = Measured(found.timed, seconds)
        if stop is _go_on:
            self._sessions[key] = found
        return found

    def mean(self, form: str, window: int, tier: str = "anchor") -> float | None:
        """The mean step of a start's three requests of a tier; None when the start brought no numbers."""
        values = self.session(form, window).timed.values_s.get(tier, ())
        return sum(values) / len(values) if values else None

    def profiled(self, form: str, requests: int) -> tuple[ServingSession, Outcome]:
        """The server of a form's first start after so many requests and one more, which was profiled, and what that one
        brought."""
        start = _Start(self, form, 1, 0)
        for _ in range(requests):
            start.server.request(TIERS["few"])
        return start.server, start.server.request(TIERS["few"], profiled=True)


class _Start:
    """One start, served as far as anybody asked."""

    def __init__(self, starts: Starts, form: str, window: int, attempt: int) -> None:
        self.experiment, self.contract = starts.experiment, starts.contract
        self.form, self.window = form, window
        self.state = HostState(None)
        self.state.resume(
            self.contract.cards,
            form,
            sessions=self.experiment.session_number(form, window) - 1 + attempt,
            of_form=window - 1,
        )
        self.server = ServingSession(self.experiment.scenario, parse_split(form), self.contract.cards, self.state)
        self.begun = self.server.startup()
        self.answers: list[Outcome] = []
        self.steps: list[float | None] = []

    @cached_property
    def _began_text(self) -> str:
        return self.begun.text

    def ask(self, number: int, tier: str) -> tuple[Outcome, float | None]:
        """The answer to request ``number`` (from 0), served now unless it was before."""
        if number == len(self.answers):
            answered = self.server.request(TIERS[tier])
            self.answers.append(answered)
            timed = parse_serve_log(answered.text).requests
            self.steps.append(timed[-1].step_s if timed else None)
        return self.answers[number], self.steps[number]

    def session(self, repeats: int, stop: Stop) -> Measured:
        """The session with so many pairs of requests."""
        if self.begun.end:
            return self._ended(SessionStatus.DID_NOT_RUN, failure_of(self._began_text).words, 0)
        talk = _Talk(self)
        talk.measure(repeats, stop)
        served = len(talk.sent)
        if talk.died:
            return self._ended(SessionStatus.DID_NOT_RUN, f"the server ended: {talk.died}", served)
        after = read_host(self.experiment.scenario, self._state_after(served))
        if others := tenants(self.contract.cards, after, self.server.pids, HEALTH.static_memory_mb):
            return self._ended(SessionStatus.CONTAMINATED, others[0], served)
        if sick := unfit(self.contract.cards, after):
            return self._ended(SessionStatus.VOID, sick[0], served)
        text = self._began_text + "".join(answer.text for answer in self.answers[:served])
        log = parse_serve_log(text, [sent.response for sent in talk.sent])
        proof = prove(log, expected_groups(parse_form(self.form)), [self.server.memory_mb()])
        if not proof.ok:
            return self._ended(SessionStatus.VOID, f"the form did not take effect: {proof.failures[0]}", served)
        rows = records_of(rows_of(talk.sent, log.requests))
        values = self._session(SessionStatus.MEASURED, talk.why, rows).values_s
        timed = self._session(SessionStatus.MEASURED, talk.why, rows, talk.ramp(values.get("few", ())))
        proved = TimedSession(replace(timed.session, proof=proof), timed.requests)
        return Measured(proved, self._seconds(served))

    def _state_after(self, served: int) -> HostState:
        with self.state.edit() as record:
            record.session_requests = served
        return self.state

    def _ended(self, status: SessionStatus, reason: str, served: int) -> Measured:
        return Measured(self._session(status, reason), self._seconds(served))

    def _seconds(self, served: int) -> float:
        stop_s = 0.0 if self.begun.end else self.experiment.scenario.serving.stop_s
        return self.begun.virtual_s + sum(answer.virtual_s for answer in self.answers[:served]) + stop_s

    def _session(self, status: SessionStatus, reason: str, rows: tuple = (), ramp: Ramp | None = None) -> TimedSession:
        return TimedSession(
            Session(
                contract=self.contract.id,
                form=self.form,
                window=self.window,
                status=status,
                reason=reason,
                evidence=(),
                command=(),
                env={},
                tries=(),
                generation=0,
                night="",
                ramp=ramp,
            ),
            rows,
        )


class _Talk:
    """The requests of a session of the workflow: warm up until steady, then few and anchor in turn."""

    def __init__(self, start: _Start) -> None:
        self.start = start
        self.sent: list[Sent] = []
        self.warm: list[float] = []
        self.died, self.why = "", ""

    def measure(self, repeats: int, stop: Stop) -> None:
        for number in range(1, WARMUPS_MAX + 1):
            if (step := self._ask(Role.RAMP, "few")) is not None:
                self.warm.append(step)
            if self.died or (number >= WARMUPS_MIN and warmed_up(self.warm, STEADY_PCT)):
                break
        timed: dict[str, list[float]] = {"few": [], "anchor": []}
        for done in range(repeats + 2):
            for tier in ("few", "anchor"):
                if not self.died and (done < repeats or len(timed[tier]) < repeats):
                    step = self._ask(Role.MEASURED, tier)
                    timed[tier] += [step] if step is not None else []
            self.why = stop(tuple(timed["anchor"]))
            if self.died or self.why or (done + 1 >= repeats and min(map(len, timed.values())) >= repeats):
                return

    def _ask(self, role: Role, tier: str) -> float | None:
        answered, step = self.start.ask(len(self.sent), tier)
        known = {"ok": RequestStatus.OK, "lost": RequestStatus.LOST}
        status = known.get(answered.response, RequestStatus.ERROR)
        self.sent.append(Sent(role, tier, 0.0, Response(status, answered.virtual_s, steps=TIERS[tier])))
        self.died = answered.end
        return step

    def ramp(self, repeats: tuple[float, ...]) -> Ramp:
        """Which requests are excluded, and whether the rest is steady."""
        step_s, warmups = [*self.warm, *repeats], len(self.warm)
        steps = [TIERS["few"]] * len(step_s)
        return judge_ramp(step_s, steps, warmups=warmups, longest=warmups, steady_pct=STEADY_PCT)
