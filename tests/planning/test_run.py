"""The plan of a run: order of sessions, what must run again, and what a person is told beforehand."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from host_states import blocks, live, state
from measured import session_record, smoke_record
from night_results import write_session

from anchormatrix.errors import AnchorMatrixError, ConfigError
from anchormatrix.history.record import record_session
from anchormatrix.history.store import open_history
from anchormatrix.hosts.owner import hold_results
from anchormatrix.planning import run as runplan
from anchormatrix.planning import triggers as parameters
from anchormatrix.planning.contracts import append_ledger
from anchormatrix.planning.rerun import reference_of
from anchormatrix.planning.run import prepare_run
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.contract import Contract
from anchormatrix.store.codec import write_record

HEALTHY = live(state(blocks([4, 4])))
SICK = live(state(blocks([4, 4]), health={2: "Alarm"}))


@pytest.fixture
def host(monkeypatch):
    """A host whose reading the test sets."""
    readings = {"now": HEALTHY}
    monkeypatch.setattr(runplan, "probe_host", lambda settings: readings["now"])
    return readings


def plan(tmp_path, **overrides):
    return prepare_run([], {"history": {"file": str(tmp_path / "history.sqlite")}, **overrides}, tmp_path)


def quad(run):
    return run.plan.of_size(4)[0].id


def finish(run, contract, form, window, generation=0):
    path = run.results / contract / form / f"w{window}" / "session.json"
    write_record(path, session_record(form, window, contract=contract, generation=generation))


def test_the_second_window_runs_in_reverse_right_after_the_first(host, tmp_path):
    run = plan(tmp_path)
    order = [(place.form, place.window) for place in run.sessions_of(quad(run))]
    assert order == [("tp1-usp4", 1), ("tp2-usp2", 1), ("tp2-usp2", 2), ("tp1-usp4", 2)]
    assert run.sessions_before(quad(run), *order[0]) == ()
    assert run.sessions_before(quad(run), *order[2]) == run.sessions_of(quad(run))[1:2]


def test_a_session_of_the_adaptive_design_rests_on_all_before_it(host, tmp_path):
    run = plan(tmp_path, matrix={"design": "adaptive"})
    places = run.sessions_of(quad(run))
    assert run.sessions_before(quad(run), places[3].form, places[3].window) == places[:3]


def test_a_session_with_its_result_does_not_have_to_run(host, tmp_path):
    run = plan(tmp_path)
    finish(run, quad(run), "tp1-usp4", 1)
    assert not run.must_run(quad(run), "tp1-usp4", 1)
    assert run.must_run(quad(run), "tp1-usp4", 2)


def test_a_cell_asked_for_again_brings_its_reference_form_and_no_other_size(host, tmp_path):
    run = plan(tmp_path, cell="tp2-usp2/anchor")
    pair = run.plan.of_size(2)[0].id
    assert run.again(quad(run)) == ("tp1-usp4", "tp2-usp2")
    assert run.again(pair) == ()
    finish(run, quad(run), "tp2-usp2", 1, generation=3)
    assert run.must_run(quad(run), "tp2-usp2", 1)
    assert run.session_generation(quad(run), "tp2-usp2", 1) == 4
    assert plan(tmp_path).session_generation(quad(run), "tp2-usp2", 1) == 3


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("tp1-usp4/middle", "'middle' is not a tier"),
        ("tp1-usp16/few", "tp1-usp16 runs on 16 cards"),
        ("tp4-usp1/few", "tp4-usp1 is not in the matrix; expected one of tp1-usp4, tp2-usp2"),
        ("tp1-usp4", "cell"),
    ],
)
def test_a_cell_that_is_not_in_the_matrix_is_refused(host, tmp_path, cell, words):
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, cell=cell)
    assert words in str(caught.value)


def test_a_person_is_told_before_a_whole_size_is_measured_again(host, tmp_path):
    before = plan(tmp_path)
    append_ledger(tmp_path / "contracts.jsonl", before.chosen.of_size(4)[:1], when="t", why="w")
    assert plan(tmp_path, cell="tp1-usp4/few").notices == ()
    host["now"] = SICK
    (notice,) = plan(tmp_path, cell="tp1-usp4/few").notices
    assert "cards 0–3 then, 4–7 now" in notice
    assert "4 sessions" in notice


@pytest.mark.parametrize("change", [{"windows": 3}, {"design": "adaptive"}, {"repeats": 4}])
def test_a_verdict_is_made_anew_when_it_would_be_made_of_other_sessions(host, tmp_path, change):
    settings = plan(tmp_path).settings
    other = msgspec.structs.replace(settings, matrix=msgspec.structs.replace(settings.matrix, **change))
    assert parameters.verdict_limits(other) != parameters.verdict_limits(settings)


def test_digests_follow_the_facts_and_not_the_readings(host, tmp_path):
    warm = live(state(blocks([4, 4]), used_mb={0: 4900}))
    first = plan(tmp_path)
    host["now"] = warm
    assert parameters.health(plan(tmp_path).live) == parameters.health(first.live)
    host["now"] = SICK
    assert parameters.health(plan(tmp_path).live) != parameters.health(first.live)
    assert parameters.links(plan(tmp_path).live) == parameters.links(first.live)


def test_a_rejecting_smoke_counts_only_for_the_state_it_was_made_in(host, tmp_path):
    run = plan(tmp_path)
    path = tmp_path / quad(run) / "smoke.json"
    write_record(path, smoke_record(status="rejected", state="busy"))
    assert not run.smoke_rejects(quad(run))
    write_record(path, smoke_record(status="rejected", state="fit"))
    assert run.smoke_rejects(quad(run))


def test_the_effective_configuration_is_written_once_under_its_digest(host, tmp_path):
    assert plan(tmp_path).config_file == plan(tmp_path, cell="tp1-usp4/few").config_file
    assert plan(tmp_path).config_file != plan(tmp_path, matrix={"repeats": 5}).config_file


def test_results_are_held_by_one_run_at_a_time(tmp_path):
    hold = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2]);"
        "from anchormatrix.hosts.owner import hold_results; hold_results(pathlib.Path(sys.argv[1]));"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path), str(runplan.Path(runplan.__file__).parents[2])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(AnchorMatrixError, match=f"in use by pid {other.pid}"):
            hold_results(tmp_path)
        other.kill()
    hold_results(tmp_path)


def test_the_reference_of_a_form_is_the_first_of_its_size_or_the_second_for_the_first():
    assert reference_of("b", ["a", "b", "c"]) == "a"
    assert reference_of("a", ["a", "b", "c"]) == "b"
    assert reference_of("a", ["a"]) == "a"


def test_before_a_size_is_measured_a_person_is_told_what_that_will_tell_and_cost(host, tmp_path):
    run = plan(tmp_path, matrix={"sizes": [4]})
    assert run.notices == (
        "4 cards: 4 server starts. How far starts differ here is unknown: if by 1 %, 2 of each form tell margins above"
        " 5.8 %",
    )
    finish(run, quad(run), "tp1-usp4", 1)
    assert plan(tmp_path, matrix={"sizes": [4]}).notices == ()


def test_a_plan_says_that_no_form_was_held_against_memory_that_is_not_told(host, tmp_path):
    run = plan(tmp_path, matrix={"sizes": [4]})
    assert [contract.memory_unchecked for contract in run.plan.contracts] == ["", ""]
    host["now"] = live(state(blocks([4, 4]), total_mb=None))
    run = plan(tmp_path, matrix={"sizes": [4]})
    words = "the cards do not tell their memory, so no form was checked against it"
    assert [contract.memory_unchecked for contract in run.plan.contracts] == [words, words]
    assert run.notices[0] == f"4 cards: {words}"


def night(run, moment, *, night="", steps=(2.0, 2.05), generation=0, of=None):
    """Both starts of the first form of four cards, in results/ and in the history."""
    with open_history(run.settings.history.file) as history:
        for window, step_s in enumerate(steps, 1):
            contract = of or run.chosen.of_size(4)[0]
            path = write_session(
                run.results, night, step_s, of=contract, form="tp1-usp4", window=window, generation=generation,
                started_at=f"{moment}T20:0{window}:00+00:00",
            )  # fmt: skip
            record_session(history, path)


def older(run):
    """The contract of four cards before the driver was another one."""
    facts = run.chosen.of_size(4)[0].facts
    return Contract(**{**facts, "driver": "an older one"})


@pytest.fixture
def adaptive(host, tmp_path):
    """A run of the adaptive design on a host that was measured in six earlier nights."""
    run = plan(tmp_path, matrix={"design": "adaptive"})
    for day in range(1, 7):
        night(run, f"2026-11-0{day}", of=older(run))
    return lambda **asked: plan(tmp_path, matrix={"design": "adaptive"}, **asked)


def test_the_plan_knows_the_noise_between_starts_and_keeps_it_while_it_is_carried_out(adaptive):
    before = adaptive()
    assert before.plan.of_size(4)[0].noise == StartNoise(sd_pct=1.4, dof=6, from_history=6)
    chosen = [contract for contract in before.chosen.contracts if contract.rank == 0]
    append_ledger(before.results / "contracts.jsonl", chosen, when="2026-12-01T19:00:00Z", why="w")
    night(before, "2026-12-01", steps=(2.0, 3.0))
    assert adaptive().plan_file == before.plan_file
    night(before, "2026-12-02", steps=(3.0, 2.0), generation=1)
    assert adaptive().plan_file == before.plan_file


def test_a_night_counts_for_the_next_one_and_not_for_itself(adaptive):
    before = adaptive(night="2026-12-01")
    night(before, "2026-12-01", night="2026-12-01")
    assert adaptive(night="2026-12-01").plan_file == before.plan_file
    assert adaptive().plan.of_size(4) == before.plan.of_size(4)
    assert adaptive(night="2026-12-02").plan.of_size(4)[0].noise.dof == 7
