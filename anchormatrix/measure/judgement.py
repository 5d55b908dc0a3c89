"""The judgement of a session: its status and why, whether the ramp had settled, and what a reader must know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from anchormatrix.engines.timing import ServeLog
from anchormatrix.measure import live_cards
from anchormatrix.measure.causes import may_differ
from anchormatrix.measure.order import SessionOrder
from anchormatrix.measure.ramp import judge_ramp, ramp_inside
from anchormatrix.measure.rows import Row
from anchormatrix.measure.served import DidNotRunError
from anchormatrix.measure.smokes.expectation import smoked_step
from anchormatrix.records.host import HostState
from anchormatrix.records.requests import Role
from anchormatrix.records.session import Proof, Ramp, Remark, SessionStatus
from anchormatrix.records.settings.values import FEW
from anchormatrix.records.settings.whole import Settings

_CLOSURE_LIMIT_PCT = 5.0


@dataclass(frozen=True)
class Judgement:
    """``status`` and ``reason`` of a session. ``by_chance``: a second try may end otherwise; ``suspect``: why its cards
    must pass a smoke before anything else runs on them."""

    status: SessionStatus
    reason: str = ""
    by_chance: bool = False
    suspect: str = ""


def judge_session(
    order: SessionOrder,
    settings: Settings,
    *,
    failure: DidNotRunError | None,
    log: ServeLog,
    rows: Sequence[Row],
    proof: Proof,
    after: HostState,
    own_pids: frozenset[int],
) -> Judgement:
    """Judge a session. Tenants and sick cards come first: they may be why a form did not run through."""
    cards, contract = order.contract.cards, order.contract
    others = live_cards.tenants(cards, after, own_pids, settings.health.static_memory_mb)
    if others:
        return Judgement(SessionStatus.CONTAMINATED, f"somebody else came while it was measured: {'; '.join(others)}")
    sick = [*live_cards.unfit(cards, after), *live_cards.changed(contract, after)]
    if sick:
        return Judgement(SessionStatus.VOID, f"after the session: {'; '.join(sick)}")
    if proof.check is not None and not proof.check.ok:  # whether or not the engine refused to serve such a form
        return Judgement(SessionStatus.VOID, f"the form computes something else: {proof.check.words}")
    timed = sum(row.step_s is not None for row in rows)
    if failure is not None:
        differs = may_differ(failure.failure)
        by_chance = timed > 0 if differs is None else differs
        killed = f"{order.form.name} was killed while it ran" if failure.killed else ""
        return Judgement(SessionStatus.DID_NOT_RUN, str(failure), by_chance, killed)
    if not log.stage_lines or (not timed and any(request.refused for request in log.requests)):
        reason = f"{log.untimed}; its pipeline profiler is on: this model cannot be measured"
        return Judgement(SessionStatus.UNMEASURABLE, reason)
    if not proof.ok:
        return Judgement(SessionStatus.VOID, f"the form did not take effect: {'; '.join(proof.failures)}")
    if len(rows) > 1 and not any(row.step_s for row in rows[-2:]):
        reason = f"the log stops: nothing was timed after request {timed}"
        return Judgement(SessionStatus.UNMEASURABLE, reason, by_chance=True)
    slow = _slower_than_smoke(order, rows, settings.smoke.residue_factor)
    return Judgement(SessionStatus.VOID, slow, suspect=slow) if slow else Judgement(SessionStatus.MEASURED)


def _slower_than_smoke(order: SessionOrder, rows: Sequence[Row], factor: float) -> str:
    """The residue state may have appeared since the smoke; it slows everything down alike, so only this tells."""
    smoked = smoked_step(order.contract.id, order.form, order.results)
    times = [row.step_s for row in rows if row.step_s and row.sent.tier == FEW]
    if not smoked or not times or median(times) < factor * smoked:
        return ""
    step_s = median(times)
    return f"a step takes {step_s:.3g} s, {step_s / smoked:.1f} times the smoke of these cards: the residue state"


def ramp_of(rows: Sequence[Row], steady_pct: float) -> Ramp:
    """The ramp of a session, from its excluded requests and its repeats."""
    timed = [row for row in rows if row.step_s and row.sent.role is not Role.CAPTURE]
    warmups = sum(row.sent.role is Role.RAMP for row in timed)
    step_s, steps = [row.step_s or 0.0 for row in timed], [row.sent.steps for row in timed]
    return judge_ramp(step_s, steps, warmups=warmups, longest=warmups, steady_pct=steady_pct)


def remarks(
    rows: Sequence[Row],
    ramp: Ramp,
    closure: float | None,
    proof: Proof,
    log: ServeLog,
    steady_pct: float,
    caution: str,
) -> tuple[Remark, ...]:
    """What a reader must know of a measured session beside its numbers; ``caution`` is what the engine says of its own
    version."""
    found = [Remark("release", caution)] if caution else []
    for steps in sorted({row.sent.steps for row in rows}):
        prints = {row.sent.response.fingerprint for row in rows if row.sent.steps == steps} - {None}
        if len(prints) > 1:
            text = f"{len(prints)} different outputs for {steps} steps with the same seed"
            found.append(Remark("output_differs", text))
    if not ramp.steady:
        found.append(Remark("ramp", ramp.why))
    single_s = [row.timed.steps_s for row in rows if row.timed and row.step_s and row.sent.role is Role.MEASURED]
    if inside := ramp_inside(single_s, steady_pct):
        found.append(Remark("ramp_inside", inside))
    if closure is not None and closure > _CLOSURE_LIMIT_PCT:
        text = f"forward differs from diffuse + decode + encode by {closure:.1f} %"
        found.append(Remark("closure", text))
    refused = [request for request in log.requests if request.refused]
    if refused:
        found.append(Remark("stage_time", f"{len(refused)} requests have no usable time: {refused[-1].refused}"))
    found += [Remark("log", text) for text in log.findings]
    return (*found, *(Remark("unproven", text) for text in proof.unproven))
