"""The triggers of a job beyond its files, as one word or a readable line each: when it changes, the job runs again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from anchormatrix.records.contract import canonical_values
from anchormatrix.records.host import HostProbe
from anchormatrix.records.settings.whole import Settings


def links(live: HostProbe) -> str:
    """Changes when the cards or the links between them do."""
    topology = live.state.topology
    return digest([topology.cards, topology.links])


def health(live: HostProbe) -> str:
    """Changes when the health, tenants or software of any card do, not when a temperature does."""
    cards = [(card.id, card.health, sorted(process.pid for process in card.processes)) for card in live.state.cards]
    return digest([cards, live.stack.driver, live.stack.toolkit, live.stack.framework_version])


def session_design(settings: Settings) -> str:
    """What a session measures beyond its contract."""
    matrix = settings.matrix
    warm = matrix.warmups
    return f"{matrix.repeats} repeats, warm-ups {warm.min}-{warm.max} to {warm.steady_pct:g}%"


def verdict_limits(settings: Settings) -> str:
    """The limits of the verdict and what it is made of: a change judges again what is measured already."""
    limits, matrix = settings.verdict, settings.matrix
    return (
        f"dispersion {limits.dispersion_pct:g}%, drift {limits.drift_pct:g}%, floor {limits.noise_floor_pct:g}%,"
        f" windows {limits.window_drift_pct:g}%, repeats {matrix.repeats}, {matrix.windows} windows {matrix.design}"
    )


def output_limits(settings: Settings) -> str:
    """What makes two outputs one picture."""
    return digest(canonical_values(msgspec.to_builtins([settings.outputs, settings.model.bytes_per_value])))


def model_figures(settings: Settings) -> str:
    """Changes when the model's figures or the rules of selection do."""
    return digest(canonical_values(msgspec.to_builtins([settings.model, settings.selection])))


def attribution_tolerances(settings: Settings) -> str:
    """The tolerances of the capture analyses."""
    limits = settings.attribution
    return (
        f"release {limits.release_us:g}us, drain {limits.drain_ratio:g}, unusable {limits.unusable_rows_pct:g}%,"
        f" keep {settings.capture.keep}"
    )


def digest(value: Any) -> str:
    """Ten hexadecimal digits that follow from JSON values alone."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
