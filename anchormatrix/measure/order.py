"""The order for a session: what it is asked to do, and the exact command and requests that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anchormatrix.engines.base import ServeCommand
from anchormatrix.measure.rig import Rig
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import ANCHOR, FEW, Tier
from anchormatrix.records.settings.whole import Settings


@dataclass(frozen=True)
class SessionOrder:
    """What to measure. ``results`` is the results folder; a capture goes to ``<results>/<contract>/<form>/capture``.

    ``repeats`` defaults to the configured ones. ``generation`` is how often the session has been asked for again,
    ``night`` the sweep it belongs to; both are only noted.
    """

    contract: Contract
    form: Form
    window: int
    results: Path
    repeats: int | None = None
    generation: int = 0
    night: str = ""

    def pairs(self, settings: Settings) -> int:
        """How many few–anchor pairs of requests are measured."""
        return self.repeats or settings.matrix.repeats

    @property
    def folder(self) -> Path:
        """The form's folder."""
        return self.results / self.contract.id / self.form.name


def captured_tier(order: SessionOrder, settings: Settings) -> Tier | None:
    """The tier that the session captures a step of: few in window 1; where it is asked for, the anchor in window 2."""
    tier = {1: FEW, 2: ANCHOR}.get(order.window)
    return tier if settings.capture.enabled and tier in settings.capture.tiers else None


def why_no_capture(order: SessionOrder, rig: Rig) -> str:
    """Why the session captures nothing; empty when it does."""
    if not rig.settings.capture.enabled:
        return "capture.enabled is off"
    tier = captured_tier(order, rig.settings)
    if tier is None:
        return "only the first window captures"
    return rig.engine.capture_refusal(tier)


def session_command(order: SessionOrder, rig: Rig, *, port: int, capture_dir: str | None) -> ServeCommand:
    """The command of a session. Raises :class:`EngineError` when the engine refuses the form."""
    return rig.engine.serve_command(
        order.form,
        port=port,
        visible_env=rig.device.visible_env(order.contract.cards),
        capture_dir=capture_dir,
        late_steps=rig.settings.matrix.tiers.anchor if captured_tier(order, rig.settings) is ANCHOR else 0,
    )


def planned_command(order: SessionOrder, rig: Rig) -> ServeCommand:
    """The command a session would start, for ``--dry-run``: reads the cards, starts nothing."""
    settings = rig.settings
    rig.device.read(rig.host, timeout_s=settings.host.command_timeout_s)
    folder = f"{settings.host.scratch_dir}/capture" if not why_no_capture(order, rig) else None
    return session_command(order, rig, port=rig.host.free_port(), capture_dir=folder)


def planned_requests(order: SessionOrder, rig: Rig) -> list[str]:
    """The requests of a session in words, for ``--dry-run``."""
    settings = rig.settings
    few, anchor = settings.matrix.tiers.few, settings.matrix.tiers.anchor
    warm, agree = settings.matrix.warmups, f"until the ramp has ended (within {settings.matrix.warmups.steady_pct:g} %)"
    lines = [f"{warm.min} to {warm.max} excluded requests of {few} steps, {agree}"]
    lines += [f"{order.pairs(settings)} times: {few} steps, then {anchor} steps"]
    if not why_no_capture(order, rig):
        late = captured_tier(order, settings) is ANCHOR
        steps = anchor if late else rig.engine.capture_request_steps(few)
        lines.append(f"1 excluded request of {steps} steps under the profiler{', its last captured' if late else ''}")
    return lines
