"""The noise of a drawn host: starts, requests, level, heat, ramp, and what long requests do to a step."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from campaigns.hardness import Hardness, Range
from virtualhost.host.faults import Moment, Span
from virtualhost.host.model import StepRule
from virtualhost.host.scenario import LevelShift, Timing

FEW, ANCHOR = 4, 10
RANGE_OF_THREE = 1.693  # expected (max − min) of three normal draws, in standard deviations
SMOKES = 2  # server starts on a host before the first window


def log_uniform(rng: Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def timing(hard: Hardness, rngs: dict[str, Random], forms: int) -> Timing:
    """How times of this host deviate. Each hardness draws from its own numbers, so none changes another."""
    requests, starts = rngs["requests"], rngs["starts"]
    deviation = requests.uniform(*hard.request_sd)
    shared, noisy = requests.random() < hard.noisy, log_uniform(requests, 1.2, 7.0)
    return Timing(
        dispersion_pct=noisy if shared else deviation * RANGE_OF_THREE,
        restart_sd_pct=starts.uniform(*hard.restart_sd),
        step_pct=requests.uniform(0.1, 1.0) if hard.any_model else 0.0,
        request_correlation=_share(rngs["correlated"], hard.correlated, (0.2, 0.9)),
        request_tail_dof=_share(rngs["tails"], hard.heavy_tails, (2.5, 6.0)),
        level_shifts=_level_shifts(rngs["level"], hard.level_shifts, forms),
        decode_jitter_pct=requests.uniform(10, 60),
        ramp=_ramp(rngs["ramp"], hard),
        **_heat(rngs["heat"], hard.thermal),
    )


def _share(rng: Random, share: float, between: Range) -> float:
    """A value between two limits on this share of hosts, else 0."""
    value = rng.uniform(*between)
    return value if rng.random() < share else 0.0


def _level_shifts(rng: Random, share: float, forms: int) -> tuple[LevelShift, ...]:
    """One or two shifts inside sessions of the first three windows, by 0.5 to 3 % either way, never in between."""
    if rng.random() >= share:
        return ()
    return tuple(
        LevelShift(
            1 + rng.choice((-1, 1)) * rng.uniform(0.005, 0.03),
            Span(Moment(SMOKES + 1 + rng.randrange(3 * forms), rng.randrange(2, 10))),
        )
        for _ in range(rng.choice((1, 1, 2)))
    )


def _heat(rng: Random, share: float) -> dict[str, Any]:
    """Heat that outlives a request, a slope within each request, or neither."""
    kind = rng.random()
    heat, slope = rng.uniform(0.5, 4.0), rng.choice((0.1, 0.3))
    times = {"heat_s": log_uniform(rng, 15, 300), "cooling_s": log_uniform(rng, 15, 300)}
    if kind < share * 2 / 3:
        return {"heat_pct": heat, **times}
    return {"thermal_pct_per_step": slope, "thermal_after": rng.choice((2, 6))} if kind < share else {}


def _ramp(rng: Random, hard: Hardness) -> tuple[float, ...]:
    """Up to three fast first requests; on a share of hosts a ramp that outlasts every warm-up and fades slowly."""
    short = tuple(sorted(rng.uniform(0.84, 0.96) for _ in range(rng.choice((0, 1, 2, 2, 3)))))
    depth, length = rng.uniform(0.03, 0.15), rng.uniform(2.0, 6.0)
    if rng.random() < hard.long_ramps:
        return tuple(1 - depth * math.exp(-number / length) for number in range(20))
    return short if hard.any_model else Timing.ramp


def step_rules(rng: Random, share: float, forms: tuple[str, ...]) -> tuple[StepRule, ...]:
    """What makes the steps of long requests differ from those of short ones.

    Four kinds, equally often: all forms drift alike between the tiers; one form does, so that orders may flip; one
    form's later steps differ, so that its anchor differs from its full step count either way; all forms' steps do
    beyond the anchor. What one form does beyond the anchor alone cannot be seen by any rule and is not drawn.
    """
    one, kind = (rng.choice(forms),), rng.randrange(4)
    rules = (
        StepRule(1 + rng.uniform(0.005, 0.13), min_steps=rng.choice((6, ANCHOR))),
        StepRule(rng.uniform(0.84, 1.2), min_steps=ANCHOR, forms=one),
        StepRule(rng.uniform(0.92, 1.12), first_step=rng.choice((1, 2, 3)), forms=one),
        StepRule(rng.uniform(0.9, 1.15), first_step=rng.choice((6, ANCHOR))),
    )
    return (rules[kind],) if rng.random() < share else ()
