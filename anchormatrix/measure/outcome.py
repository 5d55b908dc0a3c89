"""What a session amounts to: its status and why, whether the ramp had settled, and what a reader must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anchormatrix.measure import circumstances
from anchormatrix.measure.expectation import smoked_step
from anchormatrix.measure.order import SessionOrder
from anchormatrix.measure.ramp import first_steady
from anchormatrix.measure.rows import Row
from anchormatrix.measure.served import DidNotRunError
from anchormatrix.measure.serverlog.parse import ServeLog
from anchormatrix.measure.serverlog.proof import Proof
from anchormatrix.records.host import HostState
from anchormatrix.records.settings import FEW, Settings

_CLOSURE_LIMIT_PCT = 5.0


@dataclass(frozen=True)
class Outcome:
    """``status`` and ``reason`` of a session. ``by_chance``: a second try may end otherwise; ``suspect``: why its cards
    must pass a smoke before anything else runs on them."""

    status: str
    reason: str = ""
    by_chance: bool = False
    suspect: str = ""


def outcome_of(
    order: SessionOrder,
    settings: Settings,
    *,
    failure: DidNotRunError | None,
    log: ServeLog,
    rows: Sequence[Row],
    proof: Proof,
    after: HostState,
    own_pids: frozenset[int],
) -> Outcome:
    """Decide what a session is. Tenants and sick cards come first: they may be why a form did not run through."""
    cards, contract = order.contract.cards, order.contract
    others = circumstances.tenants(cards, after, own_pids, settings.health.static_memory_mb)
    if others:
        return Outcome("contaminated", f"somebody else came while it was measured: {'; '.join(others)}")
    sick = [*circumstances.unfit(cards, after), *circumstances.changed(contract, after)]
    if sick:
        return Outcome("void", f"after the session: {'; '.join(sick)}")
    if proof.check is not None and not proof.check.ok:  # whether or not the engine refused to serve such a form
        return Outcome("void", f"the form computes something else: {proof.check.words}")
    timed = sum(row.step_s is not None for row in rows)
    if failure is not None:
        by_chance = failure.cause == "port" or (timed > 0 and failure.cause != "out_of_memory")
        killed = f"{order.form.name} was killed while it ran" if failure.cause == "killed" else ""
        return Outcome("did_not_run", str(failure), by_chance, killed)
    if not log.stage_lines:
        reason = "the server logs no stage times, although its pipeline profiler is on: this model cannot be measured"
        return Outcome("unmeasurable", reason)
    if not proof.ok:
        return Outcome("void", f"the form did not take effect: {'; '.join(proof.failures)}")
    if len(rows) > 1 and not any(row.step_s for row in rows[-2:]):
        return Outcome("unmeasurable", f"the log stops: nothing was timed after request {timed}", by_chance=True)
    slow = _slower_than_smoke(order, rows, settings.smoke.residue_factor)
    return Outcome("void", slow, suspect=slow) if slow else Outcome("measured")


def _slower_than_smoke(order: SessionOrder, rows: Sequence[Row], factor: float) -> str:
    """The residue state may have appeared since the smoke; it slows everything down alike, so only this tells."""
    smoked = smoked_step(order.contract.id, order.form, order.results)
    times = [row.step_s for row in rows if row.step_s and row.sent.tier == FEW]
    if not smoked or not times or median(times) < factor * smoked:
        return ""
    step_s = median(times)
    return f"a step takes {step_s:.3g} s, {step_s / smoked:.1f} times the smoke of these cards: the residue state"


def ramp_of(warmups: Sequence[float], rows: Sequence[Row], steady_pct: float) -> dict[str, Any]:
    """Whether the steady state was reached before the repeats, and still held in them.

    ``warmups`` are the step times of the excluded requests; ``first_steady`` counts requests from 1.
    """
    start, requests = first_steady(warmups, steady_pct), sum(row.sent.role == "ramp" for row in rows)
    if start is None:
        why = f"no two neighbours of {requests} requests agreed to {steady_pct:g} % up to the last"
        return {"requests": requests, "first_steady": None, "steady": False, "why": why}
    repeats = [row.step_s for row in rows if row.sent.role == "measured" and row.sent.tier == FEW and row.step_s]
    moved = (median(repeats) / median(warmups[start:]) - 1) * 100 if repeats else 0.0
    steady, why = moved <= steady_pct, f"from request {start + 1} on neighbours agree to {steady_pct:g} %"
    if not steady:
        why += f", but the repeats are {moved:.1f} % slower: the ramp went on"
    return {"requests": requests, "first_steady": start + 1, "steady": steady, "why": why}


def findings(rows: Sequence[Row], ramp: Mapping[str, Any], closure: float | None, proof: Proof) -> list[dict[str, str]]:
    """What a reader must know of a measured session beside its numbers."""
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
