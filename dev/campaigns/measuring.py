"""A virtual host through the library's own functions: vendor text → group → sessions → cells → verdict → decision.

Only the launch of processes and the waiting are replaced: the server's log text comes from a serving session without a
process, and card time is virtual seconds × cards. Everything that reads or judges is the workflow's own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from msgspec.structs import replace

from anchormatrix.decide.adaptive_judging import judged_cells, judged_sessions
from anchormatrix.decide.assemble import Stored, judge_contract
from anchormatrix.decide.cells import build_cells
from anchormatrix.decide.verdict import judge
from anchormatrix.engines.serving import Response
from anchormatrix.engines.vllm_omni import expected_groups
from anchormatrix.measure.live_cards import tenants, unfit
from anchormatrix.measure.ramp import first_steady
from anchormatrix.measure.rows import aligned, records_of
from anchormatrix.measure.served import Sent
from anchormatrix.measure.serverlog.failures import failure_of
from anchormatrix.measure.serverlog.parse import parse_serve_log
from anchormatrix.measure.serverlog.proof import prove
from anchormatrix.planning import adaptive
from anchormatrix.planning.adaptive_state import AdaptiveLimits
from anchormatrix.records.cells import Cell
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.gates import Gates
from anchormatrix.records.requests import RequestStatus, Role
from anchormatrix.records.session import Ramp, Session, SessionStatus
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.records.verdict import Verdict
from anchormatrix.store.sessions import TimedSession
from campaigns.bench import HEALTH, TIERS, Bench, choose_group
from campaigns.hosts import Experiment

REPEATS, WINDOWS = 3, 2
WARMUPS_MIN, WARMUPS_MAX, STEADY_PCT = 4, 8, 3.0
LIMITS = VerdictSettings(dispersion_pct=3, drift_pct=5, noise_floor_pct=1, window_drift_pct=3)


@dataclass
class Outcome:
    """What one design brought on one host. ``card_s`` is virtual seconds × cards, smokes included."""

    cards: tuple[int, ...] = ()
    verdict: Verdict | None = None
    judged: Gates | None = None
    card_s: float = 0.0
    sessions: int = 0
    skipped: tuple[adaptive.Order, ...] = ()
    why_nothing: str = ""

    @property
    def winner(self) -> str | None:
        """The form the decision names."""
        return self.judged.decision.winner if self.judged else None

    @property
    def kind(self) -> str:
        """``winner``, ``no_difference`` or ``not_decidable``."""
        return self.judged.decision.outcome if self.judged else "not_decidable"


def run_full(experiment: Experiment) -> Outcome:
    """The full design: every form in both windows."""
    return _run(experiment, None)


def run_adaptive(experiment: Experiment, limits: AdaptiveLimits | None = None) -> Outcome:
    """The adaptive design: the policy is asked before and inside every session."""
    return _run(experiment, limits or AdaptiveLimits())


def _run(experiment: Experiment, limits: AdaptiveLimits | None) -> Outcome:
    bench = Bench(experiment)
    contract, why = choose_group(bench)
    if contract is None:
        return Outcome(card_s=bench.card_s, why_nothing=why)
    forms = tuple(form.name for form in experiment.forms)
    by_name = {form.name: form for form in experiment.forms}
    seen: list[TimedSession] = []
    if limits is None:
        for name, window in adaptive.sequence(forms, WINDOWS):
            seen.append(measure(bench, contract, by_name[name], adaptive.Order(name, window, REPEATS)))
    else:
        while order := adaptive.next_order(forms, seen, limits):
            seen.append(measure(bench, contract, by_name[order.form], order))
    verdict, cells, kept = conclude_cells(contract, forms, seen, limits)
    left_out = adaptive.skipped(forms, seen, limits) if limits else ()
    reasons = {order.form: order.skip for order in left_out if order.form not in {timed.session.form for timed in kept}}
    judged = judge_contract(
        Stored(
            contract=contract,
            forms=experiment.forms,
            sessions=[timed.session for timed in seen],
            cells=cells,
            verdict=verdict,
            model=experiment.figures,
            skipped=reasons,
            windows=WINDOWS,
        )
    )
    return Outcome(contract.cards, verdict, judged, bench.card_s, bench.sessions, left_out)


def conclude_cells(
    contract: Contract, forms: tuple[str, ...], seen: Sequence[TimedSession], limits: AdaptiveLimits | None
) -> tuple[Verdict, tuple[Cell, ...], tuple[TimedSession, ...]]:
    """Cells and verdict of the sessions that count."""
    kept, judged_forms, windows = tuple(seen), forms, WINDOWS
    if limits is None:
        cells = build_cells(kept, repeats=REPEATS, dispersion_pct=LIMITS.dispersion_pct)
    else:
        kept, numbers = judged_sessions(forms, seen, limits)
        judged_forms, windows = adaptive.contenders(forms, seen, limits), max(WINDOWS, len(numbers))
        cells = judged_cells(kept, limits)
    verdict = judge(contract.id, contract.size, cells, kept, forms=judged_forms, windows=windows, limits=LIMITS)
    return verdict, cells, kept


def measure(bench: Bench, contract: Contract, form: Form, order: adaptive.Order) -> TimedSession:
    """One session of one form in one window; again while a tenant spoils it."""
    for _ in range(HEALTH.contaminated_tries):
        result = _session(bench, contract, form, order)
        if result.session.status is not SessionStatus.CONTAMINATED:
            break
    return result


def _session(bench: Bench, contract: Contract, form: Form, order: adaptive.Order) -> TimedSession:
    session = bench.serve(form, contract.cards)
    start = session.startup()
    bench.spend(start.virtual_s, contract.cards)
    if start.end:
        return _result(contract, order, SessionStatus.DID_NOT_RUN, failure_of(start.text).words)
    texts, sent = [start.text], list[Sent]()

    def ask(role: Role, tier: str) -> float | None:
        answered = session.request(TIERS[tier])
        bench.spend(answered.virtual_s, contract.cards)
        texts.append(answered.text)
        known = {"ok": RequestStatus.OK, "lost": RequestStatus.LOST}
        status = known.get(answered.response, RequestStatus.ERROR)
        sent.append(Sent(role, tier, TIERS[tier], 0.0, Response(status, answered.virtual_s)))
        if answered.end:
            raise _DiedError(answered.end)
        timed = parse_serve_log(start.text + answered.text).requests
        return timed[-1].step_s if timed else None

    warm: list[float] = []
    try:
        _requests(ask, warm, order)
    except _DiedError as error:
        return _result(contract, order, SessionStatus.DID_NOT_RUN, f"the server ended: {error}")
    stopped = session.shutdown()
    bench.spend(stopped.virtual_s, contract.cards)
    after = bench.read()
    others = tenants(contract.cards, after, session.pids, HEALTH.static_memory_mb)
    if others:
        return _result(contract, order, SessionStatus.CONTAMINATED, others[0])
    if sick := unfit(contract.cards, after):
        return _result(contract, order, SessionStatus.VOID, sick[0])
    log = parse_serve_log("".join(texts))
    proof = prove(log, expected_groups(form))
    if not proof.ok:
        return _result(contract, order, SessionStatus.VOID, f"the form did not take effect: {proof.failures[0]}")
    timed = _result(contract, order, SessionStatus.MEASURED, "")
    timed = TimedSession(timed.session, records_of(aligned(sent, log.requests)))
    why = order.stop(timed.values_s.get("anchor", ()))
    return TimedSession(replace(timed.session, ramp=_ramp(warm, timed), reason=why), timed.requests)


class _DiedError(Exception):
    """The server ended inside a request."""


def _requests(ask: Any, warm: list[float], order: adaptive.Order) -> None:
    """Warm up until steady, then few and anchor in turn: the requests of a session of the workflow."""
    for number in range(1, WARMUPS_MAX + 1):
        step = ask(Role.RAMP, "few")
        if step is not None:
            warm.append(step)
        if number >= WARMUPS_MIN and first_steady(warm, STEADY_PCT) is not None:
            break
    timed: dict[str, list[float]] = {"few": [], "anchor": []}
    for done in range(order.repeats + 2):
        for tier in ("few", "anchor"):
            if done < order.repeats or len(timed[tier]) < order.repeats:
                step = ask(Role.MEASURED, tier)
                timed[tier] += [step] if step is not None else []
        if order.stop(timed["anchor"]):
            return
        if done + 1 >= order.repeats and min(map(len, timed.values())) >= order.repeats:
            return


def _ramp(warm: Sequence[float], timed: TimedSession) -> Ramp:
    first, repeats = first_steady(warm, STEADY_PCT), timed.values_s.get("few", ())
    steady = first is not None and bool(repeats)
    if first is not None and repeats:
        steady = (median(repeats) / median(warm[first:]) - 1) * 100 <= STEADY_PCT
    return Ramp(len(warm), first, steady, "")


def _result(contract: Contract, order: adaptive.Order, status: SessionStatus, reason: str) -> TimedSession:
    return TimedSession(
        Session(
            contract=contract.id,
            form=order.form,
            window=order.window,
            status=status,
            reason=reason,
            evidence=(),
            command=(),
            env={},
            tries=(),
            generation=0,
            night="",
        )
    )
