"""Scenarios: strict keys, inheritance, what they expect of a report; and the state that outlives processes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from virtualhost.host.faults import Fault, FaultPlan, Moment, Span
from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import load_scenario, scenario_from_environment
from virtualhost.host.state import HostState, Job, SessionNumbers, StateError, process_start
from virtualhost.host.strict import ScenarioError, build
from virtualhost.server.exchange import parse_split

SCENARIOS = Path(__file__).resolve().parents[2] / "virtualhost" / "scenarios"
TOP = sorted(SCENARIOS.glob("*.yaml"))
STATUSES = {"extrapolates", "drift", "order_flip", "unstable", "incomplete"}


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_loads_under_its_file_name(path):
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.description


@pytest.mark.parametrize("path", TOP, ids=lambda path: path.stem)
def test_expectations_name_forms_sizes_and_verdicts_that_exist(path):
    expect = load_scenario(path).expect
    assert set(expect) <= {"sizes", "unavailable", "rejected", "smoke", "smoke_findings"}
    assert expect
    for size, said in expect.get("sizes", {}).items():
        assert set(said) <= {"status", "winner", "group", "r", "did_not_run", "void", "unmeasurable", "picture"}
        assert said["status"] in STATUSES
        forms = [said["winner"], *said.get("r", {}), *said.get("did_not_run", {}), *said.get("void", {})]
        assert all(parse_split(form).world == size for form in forms if form)
        assert len(said.get("group", range(size))) == size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x", "sed": 1}, "sed: no such key; did you mean seed?"),
        ({"name": "x", "timing": {"ramp": 3}}, "timing.ramp: 3 is not a list"),
        ({"name": "x", "timing": {"step_pct": "much"}}, "timing.step_pct: 'much' is not a number"),
        ({"name": "x", "cards": {"count": 2.5}}, "cards.count: 2.5 is not a whole number"),
        ({"name": "x", "links": {"domains": [[0, 1]]}}, "links.domains: cards [2, 3, 4, 5, 6, 7] are in no domain"),
        ({"name": "x", "faults": [{"kind": "fire"}]}, "faults[0]: fault 'fire' is unknown"),
        ({"name": "x", "layout": "b2"}, "layout: 'b2' is none of a5, 910b, a3"),
        ({"seed": 1}, "name must be given"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_path(content, message):
    with pytest.raises(ScenarioError) as caught:
        build(Scenario, content)
    assert message in str(caught.value)


def test_a_scenario_extends_another_but_not_its_expectations(tmp_path):
    (tmp_path / "base.yaml").write_text("name: base\nseed: 3\ntiming: {step_pct: 1, ramp: []}\nexpect: {sizes: {}}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\nname: mine\ntiming: {step_pct: 2}\n")
    scenario = load_scenario(tmp_path / "mine.yaml")
    assert (scenario.name, scenario.seed, scenario.timing.step_pct, scenario.timing.ramp) == ("mine", 3, 2.0, ())
    assert scenario.expect == {}


def test_a_scenario_may_not_extend_itself(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ScenarioError, match="extends itself"):
        load_scenario(tmp_path / "a.yaml")


def test_an_override_changes_the_living_host(tmp_path):
    override = tmp_path / "override.yaml"
    override.write_text("health: [{cards: [4], state: Alarm}]\n")
    scenario = load_scenario(SCENARIOS / "healthy.yaml", HostState(tmp_path).override_path)
    assert LiveHost(scenario, HostState(None)).health(4) == "Alarm"


def test_a_span_begins_and_ends_with_a_session_and_a_request():
    span = Span(start=Moment(2, 3), end=Moment(3))
    assert [span.active(*now, 1) for now in ((2, 2), (2, 3), (2, 9), (3, 0))] == [False, True, True, False]
    assert not Span(from_call=5).active(9, 9, 4)


def test_faults_are_chosen_by_form_session_and_request():
    faults = (
        Fault("crash", form="tp1-usp4", request=2),
        Fault("lost_response", session=3, request=1),
        Fault("hang", form="tp2-usp2"),
    )
    plan = FaultPlan(faults, HostState(None), SessionNumbers(3, 1, 0), "tp1-usp4", (0, 1, 2, 3))
    assert plan.in_request(1, "crash", "hang") is None
    assert plan.in_request(1, "lost_response") == faults[1]
    assert plan.in_request(2, "crash", "hang") == faults[0]


def test_a_fault_with_times_happens_so_often_in_the_life_of_the_state(tmp_path):
    fault = Fault("crash", times=1)
    plans = [FaultPlan([fault], HostState(tmp_path), SessionNumbers(n, n, 0), "tp1-usp2", (0, 1)) for n in (1, 2)]
    assert [plan.in_request(1, "crash") for plan in plans] == [fault, None]


def test_a_job_that_vanished_leaves_residue_on_its_cards(tmp_path):
    child = subprocess.Popen(["sleep", "30"])
    state = HostState(tmp_path)
    state.register(Job(child.pid, process_start(child.pid), (4, 5), "tp1-usp2", 1))
    assert [job.pid for job in state.jobs()] == [child.pid]
    child.kill()
    child.wait()
    assert state.jobs() == ()
    assert HostState(tmp_path).snapshot().residue == [4, 5]
    state.reset_card(4)
    assert state.snapshot().residue == [5]


def test_a_single_card_job_and_a_clean_end_leave_none(tmp_path):
    state, gone = HostState(tmp_path), 2**22 + 1
    state.register(Job(gone, 1, (4,), "tp1-usp1", 1))
    state.register(Job(gone + 1, 1, (4, 5), "tp1-usp2", 1))
    state.unregister(gone + 1)
    assert state.jobs() == ()
    assert state.snapshot().residue == []


def test_a_reused_pid_is_another_process(tmp_path):
    state = HostState(tmp_path)
    state.register(Job(os.getpid(), process_start(os.getpid()) + 1, (0, 1), "tp1-usp2", 1))
    assert state.jobs() == ()


def test_without_a_state_file_the_host_is_as_new(tmp_path):
    state = HostState(tmp_path)
    state.add_residue((0, 1))
    assert json.loads((tmp_path / "state.json").read_text())["residue"] == [0, 1]
    (tmp_path / "state.json").unlink()
    assert state.snapshot().residue == []


def test_only_a_clean_end_advances_the_noise_of_a_form(tmp_path):
    state = HostState(tmp_path)
    state.begin_session((0, 1), "tp1-usp2")
    assert state.begin_session((0, 1), "tp1-usp2") == SessionNumbers(2, 2, 0)
    state.finish_session((0, 1), "tp1-usp2", 10.0)
    assert state.begin_session((0, 1), "tp1-usp2") == SessionNumbers(3, 3, 1)
    assert state.begin_session((2, 3), "tp1-usp2") == SessionNumbers(4, 1, 0)


def test_a_damaged_state_file_is_said_to_be_damaged(tmp_path):
    state = HostState(tmp_path)
    (tmp_path / "state.json").write_text('{"sessions": 3')
    with pytest.raises(StateError, match="damaged; remove it"):
        state.snapshot()


def test_without_a_named_scenario_the_host_is_healthy(monkeypatch):
    monkeypatch.delenv("VIRTUALHOST_SCENARIO", raising=False)
    assert scenario_from_environment().name == "healthy"
