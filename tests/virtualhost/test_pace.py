"""The noise of a session: what a server start, a request and warm cards do to the plain step."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split
from virtualhost.host.state import HostState, SessionNumbers
from virtualhost.host.strict import ScenarioError, build
from virtualhost.server.pace import repeat_number
from virtualhost.server.serving import ServingSession

QUIET = {"dispersion_pct": 0.0, "restart_sd_pct": 0.0, "step_pct": 0.0, "ramp": []}
LOG = {"per_step": True, "interleave_every": 0}


def host(**timing) -> Scenario:
    return build(Scenario, {"name": "test", "timing": {**QUIET, **timing}, "log": LOG})


def session(scenario: Scenario, state: HostState | None = None) -> ServingSession:
    return ServingSession(scenario, Split(usp=4), (0, 1, 2, 3), state)


def step(running: ServingSession, steps: int = 4) -> float:
    """Mean step of a request against the plain step."""
    before = running.clock_s
    took = running.request(steps).virtual_s
    timing = running.scenario.timing
    assert running.clock_s == before + took
    return (took - timing.encode_s - timing.decode_s) / steps / (running.timeline.step_ns / 1e9)


def steady(**timing) -> dict:
    return {"encode_s": 0.0, "decode_s": 0.0, "decode_jitter_pct": 0.0, "overhead_s": 0.0, **timing}


def test_every_start_has_its_own_factor_whatever_its_requests_do():
    scenario, state = host(**steady(restart_sd_pct=2.0)), HostState(None)
    starts = []
    for _ in range(300):
        running = session(scenario, state)
        one, two = step(running), step(running)
        assert one == pytest.approx(two, rel=1e-9)
        starts.append(one)
        running.shutdown()
    assert fmean(starts) == pytest.approx(1.0, abs=0.004)
    assert pstdev(starts) == pytest.approx(0.02, abs=0.002)


def noise(**timing) -> list[float]:
    running = session(host(**steady(dispersion_pct=1.693, **timing)))  # a standard deviation of 1 %
    return [step(running) - 1 for _ in range(1000)]


def test_neighbouring_requests_are_alike_where_their_noise_is_correlated():
    for correlation in (0.0, 0.8):
        found = noise(request_correlation=correlation)
        products = fmean(a * b for a, b in pairwise(found))
        assert products / fmean(a * a for a in found) == pytest.approx(correlation, abs=0.09)
        assert pstdev(found) == pytest.approx(0.01, abs=0.001)


def test_heavy_tails_keep_the_deviation_and_reach_further():
    assert max(map(abs, noise())) == pytest.approx(0.025)
    found = noise(request_tail_dof=4)
    assert pstdev(found) == pytest.approx(0.01, abs=0.002)
    assert max(map(abs, found)) > 0.04


def test_the_level_shifts_in_the_middle_of_a_session_and_stays():
    shift = {"factor": 1.03, "when": {"start": {"session": 1, "request": 3}}}
    scenario, state = host(**steady(level_shifts=[shift])), HostState(None)
    first = session(scenario, state)
    assert [round(step(first), 4) for _ in range(4)] == [1.0, 1.0, 1.03, 1.03]
    first.shutdown()
    assert step(session(scenario, state)) == pytest.approx(1.03)


def test_heat_outlives_a_request_and_is_lost_in_the_pause():
    hot = {"heat_pct": 10.0, "heat_s": 20.0, "cooling_s": 20.0}
    running = session(host(**steady(**hot)))
    rising = [step(running, 10) for _ in range(6)]
    assert rising == sorted(rising)
    assert 1.0 < rising[0] < 1.07
    assert 1.095 < rising[-1] < 1.1
    paused = session(host(**{**steady(**hot), "overhead_s": 200.0}))
    first = paused.request(10).virtual_s
    assert paused.request(10).virtual_s == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize("wrong", [{"request_correlation": 1.0}, {"request_tail_dof": 2.0}, {"cooling_s": 0.0}])
def test_impossible_noise_is_refused(wrong):
    with pytest.raises(ScenarioError, match=next(iter(wrong))):
        host(**wrong)


def test_a_named_window_repeats_exactly_however_many_sessions_ended_before():
    window, smoke = (
        Path("/scratch/c4-0123456789-tp1-usp4-w2-QOCSGL/server.log"),
        Path("/scratch/smoke-c4-QO/server.log"),
    )
    ended_thrice = SessionNumbers(host=9, form_starts=5, form_finished=3)
    assert repeat_number(host(windows_named=True), ended_thrice, window) == 2
    assert repeat_number(host(windows_named=True), ended_thrice, smoke) == 0
    assert repeat_number(host(), ended_thrice, window) == 3
    assert repeat_number(host(windows_differ=False), ended_thrice, window) == 0
