"""The time that a run is expected to take: by history, by the smoke's step, else reckoned; the examples' half hour."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_states import blocks, state
from night_results import place

from anchormatrix.config.merge import load_settings
from anchormatrix.history.progress import Durations
from anchormatrix.planning.contracts import list_contracts
from anchormatrix.planning.outlook.expected import Work, expect
from anchormatrix.planning.outlook.reckoning import reckon, session_s, smoke_s
from anchormatrix.planning.run_plan import make_run_plan
from anchormatrix.records.host import HostProbe, Stack
from anchormatrix.records.night import Place
from anchormatrix.records.settings.whole import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "config" / "examples").glob("*.yaml"))
NEVER = Durations({})
SESSIONS = (place(), place("tp2-usp1"))


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(ROOT / "config" / "examples" / "ascend-local.yaml")


def test_a_step_and_a_start_are_reckoned_from_the_models_figures(settings):
    found = reckon(settings)
    # 14.3 · 10⁹ weights × 32760 tokens × 2, and 4 × 32760² × 5120 × 40 of attention, for two branches
    assert found.step_flop == pytest.approx(2 * (0.937e15 + 0.879e15), rel=1e-3)
    assert found.step_s(8) == pytest.approx(3.03, abs=0.01)
    assert found.load_s == pytest.approx(98.9, abs=0.1)  # 30 s, and 2 × 28.6 + 11.4 + 0.25 GB at 1 GB/s
    assert found.words == "starts of 99 s for 68.9 GB of weights, steps of 3.6 PFLOP at 150 TFLOP/s a card"


def test_a_session_is_its_start_62_steps_and_11_requests(settings):
    found = reckon(settings)
    # 5 requests of 4 steps excluded, 3 of 4 and 3 of 10 measured; a decode is 0.98 PFLOP: 6.6 s
    assert session_s(settings, 1.0, found) == pytest.approx(98.9 + 62 + 11 * 6.55, abs=0.5)
    assert smoke_s(settings, 1.0, found) == pytest.approx(98.9 + 4 + 6.55, abs=0.2)


def test_nothing_timed_yet_is_said_with_the_number_of_loads(settings):
    found = expect([Work(2, SESSIONS, 2, smoke=True, sweep=True)], settings, NEVER)
    assert found.words == (
        "To measure: 2 sessions, 1 smoke, 1 sweep of bandwidth. Expected on the cards: 0:34 h, nothing of it timed yet:"
        " reckoned from 3 loads (starts of 99 s for 68.9 GB of weights, steps of 3.6 PFLOP at 150 TFLOP/s a card)."
    )


def test_a_smokes_step_replaces_the_reckoned_one(settings):
    found = expect([Work(2, SESSIONS, 2, smoke=False, sweep=False, step_s=1.0)], settings, NEVER)
    assert found.most_s == pytest.approx(2 * 233, abs=2)
    assert found.words.endswith("Expected on the cards: 0:08 h, by the smoke's step.")


def test_history_comes_before_both(settings):
    known = Durations({place(): 100.0, place("tp2-usp1"): 140.0})
    found = expect([Work(2, SESSIONS, 2, smoke=False, sweep=False, step_s=1.0)], settings, known)
    assert found.words == "To measure: 2 sessions. Expected on the cards: 0:04 h, by history."


def test_a_size_without_history_beside_one_with(settings):
    known = Durations({place(): 100.0})
    other = Work(4, (Place("c4-0123456789", "tp1-usp4", 1),), 1, smoke=False, sweep=False)
    found = expect([Work(2, (place(),), 1, smoke=False, sweep=False), other], settings, known)
    assert "by history, 1 of them reckoned from 2 loads (" in found.words


def test_the_adaptive_design_starts_some_at_least(settings):
    known = Durations({place(): 60.0})
    found = expect([Work(2, (place(),) * 8, 3, smoke=False, sweep=False)], settings, known)
    assert found.words == "To measure: 3 to 8 sessions. Expected on the cards: 0:03 h to 0:08 h, by history."


def test_nothing_to_measure(settings):
    assert expect([], settings, NEVER).words == "Nothing is to be measured."


# --- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_forms_of_an_example_take_half_an_hour_at_most(path):
    settings = load_settings(path)
    live = HostProbe(state(blocks([2] if settings.device.kind == "cpu" else [4, 4])), Stack())
    plan = make_run_plan(settings, live, list_contracts(live, settings, ()), lambda _: None)
    works = []
    for size in settings.matrix.sizes:
        first = plan.of_size(size)[0]
        places = tuple(Place(first.id, one.form, one.window) for one in first.sessions)
        works.append(Work(size, places, len(places), smoke=True, sweep=settings.selection.bandwidth.enabled))
    found = expect(works, settings, NEVER)
    assert found.most >= 4
    assert found.most_s <= 30 * 60
