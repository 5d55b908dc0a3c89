"""Records of sessions, smokes and verdicts for tests: whole ones, with only what a test speaks of given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchormatrix.records.conclusions.selection import Rival, Selection, Standing, StartNoise
from anchormatrix.records.conclusions.verdict import Verdict, VerdictStatus
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.session import Circumstances, Ramp, SeenCard, SeenCards, Session, SessionStatus
from anchormatrix.records.settings.policies import VerdictSettings
from anchormatrix.records.smoke import Smoke, SmokeStatus
from anchormatrix.store.sessions import TimedSession

STEPS = {"few": 4, "anchor": 10}


def session_record(form: str = "tp1-usp4", window: int = 1, status: str = "measured", **facts: Any) -> Session:
    """A session's record; ``steady`` says whether its ramp settled."""
    steady = facts.pop("steady", True)
    known: dict[str, Any] = {
        "contract": "c4-x", "reason": "", "evidence": (), "command": (), "env": {}, "tries": (), "generation": 0,
        "night": "", "ramp": Ramp(3, 2 if steady else None, steady, "so"),
    }  # fmt: skip
    return Session(form=form, window=window, status=SessionStatus(status), **{**known, **facts})


def request_row(number: int, tier: str, step_s: float | None, **facts: Any) -> RequestRow:
    """A measured request of a tier, timed or not."""
    known: dict[str, Any] = {
        "role": Role.MEASURED, "steps": STEPS[tier], "iterations": STEPS[tier], "denominator": "bar", "ranks": 4,
        "status": RequestStatus.OK, "latency_s": 1.0, "sent_s": 1.0,
    }  # fmt: skip
    return RequestRow(request=number, tier=tier, step_s=step_s, **{**known, **facts})


def timed_session(
    form: str, window: int, values_s: Mapping[str, Sequence[float]], status: str = "measured", **facts: Any
) -> TimedSession:
    """A session with repeats of these step times by tier."""
    flat = [(tier, step_s) for tier, steps in values_s.items() for step_s in steps]
    rows = tuple(request_row(number, tier, step_s) for number, (tier, step_s) in enumerate(flat, start=1))
    return TimedSession(session_record(form, window, status, **facts), rows)


def smoke_record(contract: str = "c4-x", status: str = "passed", **facts: Any) -> Smoke:
    """A smoke's record."""
    known: dict[str, Any] = {
        "findings": (), "step_s": None, "expected_s": None, "expected_source": None, "ranks": (), "form": "tp1-usp4",
        "command": (), "started_at": "2026-11-30T23:00:00+00:00", "evidence": (), "state": "fit", "generation": 0,
        "night": "",
    }  # fmt: skip
    return Smoke(contract=contract, status=SmokeStatus(status), **{**known, **facts})


def selection_record(
    steps: Mapping[str, float] | None = None, *, starts: int = 2, error_pct: float = 0.5, decided: bool = True
) -> Selection:
    """The selection among forms of these steps, with an interval of ± ``error_pct`` round every difference."""
    told = Standing.SETTLED if decided else Standing.OPEN
    steps = steps or {"tp1-usp4": 1.0, "tp2-usp2": 1.1}
    leader, *others = sorted(steps, key=lambda form: steps[form])
    behind = {form: 100 * (steps[form] / steps[leader] - 1) for form in others}
    rivals = tuple(
        Rival(
            form=form, standing=Standing.BEHIND if pct > error_pct else told, behind_pct=pct,
            low_pct=pct - error_pct, high_pct=pct + error_pct, starts=starts,
        )
        for form, pct in behind.items()
    )  # fmt: skip
    return Selection(
        leader=leader, decided=decided, rivals=rivals, noise=StartNoise(sd_pct=0.2, dof=2.0), zone_pct=1.0, level=0.015,
        starts=dict.fromkeys(steps, starts),
    )  # fmt: skip


def verdict_record(status: str = "extrapolates", winner: str | None = "tp1-usp4", **facts: Any) -> Verdict:
    """A verdict's record."""
    known: dict[str, Any] = {
        "contract": "c4-x", "size": 4, "reason": "", "r": {}, "order_few": (), "order_anchor": (), "ties": (),
        "tied_with": (), "margin_pct": None, "window_drift": (), "conclusion_stands": None, "did_not_run": (),
        "left_out": (), "missing": (), "cure": "", "selection": selection_record(), "windows_agree": True,
        "limits": VerdictSettings(dispersion_pct=3, drift_pct=5, noise_floor_pct=1, window_drift_pct=3),
    }  # fmt: skip
    return Verdict(status=VerdictStatus(status), winner=winner, **{**known, **facts})


def circumstances(
    temperature_c: float = 50.0, load: float = 1.0, health: str = "OK", tool: str = "25.2.0"
) -> Circumstances:
    """Two cards, alike before and after; ``health`` is that of card 1."""
    cards = SeenCards(
        tuple(SeenCard(card, health if card == 1 else "OK", 4000, temperature_c - card, None, ()) for card in (0, 1))
    )
    return Circumstances(cards, cards, load, {"tool": tool})
