"""A night's sweep: locks, retries, the deadline, the hook, and a night that goes on after it was cut off."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from night_results import FORM, contract, write_session
from night_world import NIGHT, World

from anchormatrix.history.nights import last_nights
from anchormatrix.history.store import open_history
from anchormatrix.nightly.sweep import call_hook, run_workflow
from anchormatrix.records.night import NightOutcome


def _world(tmp_path: Path, **other: Any) -> World:
    return World(tmp_path / "results", [], **other)


def test_a_quiet_night_is_fine_and_called_once(tmp_path: Path) -> None:
    world = _world(tmp_path)
    world.steps = [world.measure(FORM, "tp2-usp1")]
    outcome, review = world.run()
    assert outcome is NightOutcome.FINE
    assert world.calls == [()]
    assert world.published == [review]
    with open_history(world.history) as history:
        (night,) = last_nights(history, 5)
    assert (night.outcome, night.starts, night.started_at) == ("fine", 1, "2026-11-30 23:00")


def test_what_failed_is_tried_again_and_no_more_than_allowed(tmp_path: Path) -> None:
    world = _world(tmp_path, retries=2)
    world.steps = [world.measure(FORM, code=1), world.measure("tp2-usp1")]
    assert world.run()[0] is NightOutcome.FINE
    assert len(world.calls) == 2
    world = _world(tmp_path / "other", retries=1)
    world.steps = [world.measure(FORM, code=1), world.measure(code=1)]
    outcome, review = world.run()
    assert outcome is NightOutcome.COULD_NOT_MEASURE
    assert review is not None
    assert [item.status for item in review.sessions] == ["measured", "not_started"]


def test_a_form_that_ran_before_is_measured_again_and_then_is_a_regression(tmp_path: Path) -> None:
    world = _world(tmp_path)
    write_session(world.results, "2026-11-29", form="tp2-usp1")
    failed = world.measure("tp2-usp1", status="did_not_run", reason="killed")
    world.steps = [lambda: world.measure(FORM)() or failed(), failed]
    outcome, _ = world.run()
    assert outcome is NightOutcome.REGRESSION
    assert world.calls == [(), [str(world.results / contract().id / "tp2-usp1" / "w1" / "session.json")]]


def test_results_that_a_killed_sweep_left_are_recorded_and_the_night_goes_on(tmp_path: Path) -> None:
    world = _world(tmp_path)
    world.steps = [lambda: pytest.fail("killed here")]
    with pytest.raises(pytest.fail.Exception):
        world.run()
    with open_history(world.history) as history:
        assert last_nights(history, 1)[0].outcome == ""
    write_session(world.results, NIGHT)
    world.steps, world.calls = [world.measure("tp2-usp1")], []
    assert world.run()[0] is NightOutcome.FINE
    assert "recorded 1 sessions that the history lacked" in world.said
    with open_history(world.history) as history:
        assert (last_nights(history, 1)[0].starts, last_nights(history, 1)[0].outcome) == (2, "fine")


def test_a_sweep_started_after_the_deadline_measures_nothing_and_says_so(tmp_path: Path) -> None:
    world = _world(tmp_path, now=datetime(2026, 12, 1, 9, 15))
    outcome, review = world.run()
    assert outcome is NightOutcome.COULD_NOT_MEASURE
    assert review is not None
    assert review.problem == "missed: started at 2026-12-01 09:15, after the deadline 2026-12-01 06:00"
    assert world.calls == []


def test_no_try_is_begun_after_the_deadline(tmp_path: Path) -> None:
    world = _world(tmp_path, retries=5)

    def late() -> int:
        world.now = datetime(2026, 12, 1, 6, 1)
        return 1

    world.steps = [late]
    assert world.run()[0] is NightOutcome.COULD_NOT_MEASURE
    assert len(world.calls) == 1


def test_a_second_sweep_at_once_ends_and_is_noted(tmp_path: Path) -> None:
    world = _world(tmp_path)

    def second() -> int:
        world.steps.append(lambda: 0)
        assert world.run() == (NightOutcome.COULD_NOT_MEASURE, None)
        return world.measure(FORM, "tp2-usp1")()

    world.steps = [second]
    assert world.run()[0] is NightOutcome.FINE
    with open_history(world.history) as history:
        (note,) = last_nights(history, 1)[0].notes
    assert "a second sweep was started and ended at once" in note


def test_a_host_that_cannot_be_read_is_a_night_that_could_not_measure(tmp_path: Path) -> None:
    world = _world(tmp_path, host_lost=True)
    world.steps = [lambda: 1, lambda: 1]
    outcome, review = world.run()
    assert outcome is NightOutcome.COULD_NOT_MEASURE
    assert review is not None
    assert review.problem == "the workflow ended with exit code 1 and measured nothing"


def test_a_failed_report_is_not_called_fine(tmp_path: Path) -> None:
    world = _world(tmp_path, retries=0)
    world.steps = [world.measure(FORM, "tp2-usp1", code=1)]
    outcome, review = world.run()
    assert outcome is NightOutcome.COULD_NOT_MEASURE
    assert review is not None
    assert "everything was measured, but the workflow ended with exit code 1" in review.problem


def test_a_damaged_history_is_moved_aside_and_filled_again(tmp_path: Path) -> None:
    world = _world(tmp_path)
    write_session(world.results, NIGHT)
    world.history.write_bytes(b"no database " * 100)
    world.steps = [world.measure("tp2-usp1")]
    assert world.run()[0] is NightOutcome.FINE
    assert any("a new history begins" in text for text in world.said)


def test_the_hook_is_told_the_outcome(tmp_path: Path) -> None:
    script = (
        "import json, os, pathlib, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps([json.load(sys.stdin), os.environ['ANCHORMATRIX_OUTCOME']]))\n"
    )
    world = _world(tmp_path, hook=(sys.executable, "-c", script, str(tmp_path / "told.json")))
    world.steps = [world.measure(FORM, "tp2-usp1")]
    world.run()
    told, outcome = json.loads((tmp_path / "told.json").read_text())
    assert outcome == "fine"
    assert (told["schema"], told["night"], told["exit_code"], told["problem"]) == (1, NIGHT, 0, "")


@pytest.mark.parametrize(
    ("hook", "noted"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('no mail server')"), "exit code 1: no mail server"),
        (("/no/such/hook",), "cannot be run"),
    ],
)
def test_a_hook_that_fails_changes_nothing_but_the_notes(tmp_path: Path, hook: tuple[str, ...], noted: str) -> None:
    world = _world(tmp_path, hook=hook)
    world.steps = [world.measure(FORM, "tp2-usp1")]
    assert world.run()[0] is NightOutcome.FINE
    with open_history(world.history) as history:
        assert noted in last_nights(history, 1)[0].notes[0]


def test_a_hook_that_hangs_is_stopped() -> None:
    told = {"night": NIGHT, "outcome": "fine", "exit_code": 0, "report": "x"}
    hang = (sys.executable, "-c", "import time; time.sleep(600)")
    assert call_hook(hang, told, limit_s=0.3) == "nightly.hook did not end within 0.3 s and was stopped"


def test_a_hook_gets_the_secret_it_is_given_and_no_other_and_what_it_prints_is_masked(monkeypatch) -> None:
    monkeypatch.setenv("ANCHORMATRIX_SECRETS", json.dumps({"nightly.hook.3.token": "T0K3N-1", "host.env.X": "other"}))
    told = {"night": NIGHT, "outcome": "fine", "exit_code": 0, "report": "x"}
    code = (
        "import os, sys; word = sys.argv[1]; print(word, len(word), 'ANCHORMATRIX_SECRETS' in os.environ); sys.exit(3)"
    )
    problem = call_hook((sys.executable, "-c", code, "{secret:nightly.hook.3.token}"), told, limit_s=20)
    assert problem == "nightly.hook ended with exit code 3: {secret:nightly.hook.3.token} 7 False"


def test_the_workflows_exit_code_is_handed_on(tmp_path: Path) -> None:
    assert run_workflow([sys.executable, "-c", "raise SystemExit(5)"], tmp_path) == 5
