"""The pace of a request: seconds of every executed step, from the plain step to noise, ramp, heat and slowness."""

from __future__ import annotations

import random

from virtualhost.host.faults import FaultPlan
from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split, step_factor

# expected (max − min) of three draws of a normal distribution, in standard deviations
_RANGE_OF_THREE = 1.693


def step_times(
    scenario: Scenario, plan: FaultPlan, split: Split, plain_s: float, steps: int, number: int, rng: random.Random
) -> list[float]:
    """Return the seconds of each executed step of a session's request ``number``, asked for with ``steps`` steps.

    ``plain_s`` is what a step takes in this session on an otherwise ideal host.
    """
    timing = scenario.timing
    deviation = timing.dispersion_pct / 100 / _RANGE_OF_THREE
    common = plain_s * (1 + max(-2.5, min(2.5, rng.gauss(0.0, 1.0))) * deviation)
    if number <= len(timing.ramp):
        common *= timing.ramp[number - 1]
    if fault := plan.in_request(number, "slow"):
        common *= fault.factor
    executed = steps - 1 if scenario.log.iterations_minus_one and steps > 1 else steps
    times = []
    for index in range(executed):
        heat = max(0, index + 1 - timing.thermal_after) * timing.thermal_pct_per_step / 100
        own = step_factor(scenario.behaviour, split, index, steps)
        times.append(common * own * (1 + heat) * (1 + rng.gauss(0.0, 1.0) * timing.step_pct / 100))
    return times
