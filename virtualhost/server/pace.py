"""The pace of a session: seconds of every executed step, from the plain step to noise, ramp, heat and slowness."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

from virtualhost.host.faults import FaultPlan
from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split, step_factor
from virtualhost.host.state import SessionNumbers

# expected (max − min) of three draws of a normal distribution, in standard deviations
_RANGE_OF_THREE = 1.693
_WINDOW = re.compile(r"-w(\d+)(?=[-/])")


def repeat_number(scenario: Scenario, numbers: SessionNumbers, log: Path = Path("/proc/self/fd/1")) -> int:
    """Which of its form's repeats a session is, for its noise: 0 where all are alike.

    By default the clean ends of the form before it count. ``windows_named`` takes the window that the folder of the
    server's log is named for, so that a session has the same times however often it was broken off or ended before.
    """
    if scenario.timing.windows_named:
        found = _WINDOW.search(str(log.resolve()))
        return int(found[1]) if found else 0
    return numbers.form_finished if scenario.timing.windows_differ else 0


class Pace:
    """What one server start makes of the plain step: its own factor, and what its requests leave to the next ones.

    ``seed`` names the start. Its factor holds for all its requests. Their noise is a first-order autoregression, and
    the cards warm up while they compute and cool while they do not. A start begins with cool cards.
    """

    def __init__(self, scenario: Scenario, plan: FaultPlan, split: Split, seed: str) -> None:
        self.scenario, self.plan, self.split = scenario, plan, split
        self.restart_factor = 1 + random.Random(seed).gauss(0.0, 1.0) * scenario.timing.restart_sd_pct / 100
        self._deviation: float | None = None
        self._heat, self._cools_from_s = 0.0, 0.0

    def step_times(self, plain_s: float, steps: int, number: int, begins_s: float, rng: random.Random) -> list[float]:
        """Return the seconds of each executed step of request ``number``, asked for with ``steps`` steps.

        ``plain_s`` is what a step takes on this host now, without noise; the first step begins at ``begins_s``.
        """
        timing, restart = self.scenario.timing, self.restart_factor
        common = plain_s * restart * (1 + self._noise(rng) * timing.dispersion_pct / 100 / _RANGE_OF_THREE)
        if number <= len(timing.ramp):
            common *= timing.ramp[number - 1]
        if fault := self.plan.in_request(number, "slow"):
            common *= fault.factor
        self._cool(begins_s)
        executed = steps - 1 if self.scenario.log.iterations_minus_one and steps > 1 else steps
        times = []
        for index in range(executed):
            slope = max(0, index + 1 - timing.thermal_after) * timing.thermal_pct_per_step / 100
            own = common * step_factor(self.scenario.behaviour, self.split, index, steps)
            cool_s = own * (1 + slope) * (1 + rng.gauss(0.0, 1.0) * timing.step_pct / 100)
            times.append(cool_s * self._warmed(cool_s))
        self._cools_from_s = begins_s + sum(times)
        return times

    def _noise(self, rng: random.Random) -> float:
        """The request's deviation in standard deviations; cut at 2.5 of them unless its tails are heavy."""
        timing = self.scenario.timing
        own = rng.gauss(0.0, 1.0)
        if dof := timing.request_tail_dof:  # Student's t, scaled to a standard deviation of 1
            own *= math.sqrt((dof - 2) / rng.gammavariate(dof / 2, 2.0))
        else:
            own = max(-2.5, min(2.5, own))
        if self._deviation is not None:
            kept = timing.request_correlation
            own = kept * self._deviation + math.sqrt(1 - kept * kept) * own
        self._deviation = own
        return own

    def _warmed(self, seconds: float) -> float:
        """The factor of a step that computes for ``seconds``; the cards come closer to their full heat in it."""
        timing = self.scenario.timing
        if not timing.heat_pct:
            return 1.0
        factor = 1 + self._heat * timing.heat_pct / 100
        self._heat += (1 - self._heat) * (1 - math.exp(-seconds / timing.heat_s))
        return factor

    def _cool(self, now_s: float) -> None:
        self._heat *= math.exp(-max(0.0, now_s - self._cools_from_s) / self.scenario.timing.cooling_s)
