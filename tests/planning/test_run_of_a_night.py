"""What a night asks of a run's plan: everything anew, once, and never two nights in one matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from host_states import blocks, live, state
from measured import session_record, smoke_record

from anchormatrix.planning import run as runplan
from anchormatrix.planning.run import Run, prepare_run
from anchormatrix.records.smoke import Smoke
from anchormatrix.store.codec import write_record

SESSION = ("tp1-usp4", 1)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runplan, "probe_host", lambda settings: live(state(blocks([4, 4]))))


def _plan(results: Path, **overrides: Any) -> Run:
    return prepare_run([], {"history": {"file": str(results / "history.sqlite")}, **overrides}, results)


def _quad(run: Run) -> str:
    return run.plan.of_size(4)[0].id


def _finish(run: Run, form: str, window: int, night: str) -> None:
    path = run.results / _quad(run) / form / f"w{window}" / "session.json"
    write_record(path, session_record(form, window, contract=_quad(run), night=night))


def _smoke(run: Run, night: str) -> None:
    write_record(run.results / _quad(run) / "smoke.json", _smoked(run, "passed", night))


def _smoked(run: Run, status: str, night: str) -> Smoke:
    return smoke_record(_quad(run), status, state=run.state_of(_quad(run)), night=night)


def test_a_new_night_measures_everything_anew_under_the_same_contract(tmp_path: Path) -> None:
    before = _plan(tmp_path)
    _finish(before, *SESSION, "")
    _smoke(before, "")
    tonight = _plan(tmp_path, night="2026-11-30")
    assert _quad(tonight) == _quad(before)
    assert tonight.config_file == before.config_file
    assert tonight.must_run(_quad(tonight), *SESSION)
    assert tonight.smoke_must_run(_quad(tonight))
    assert not _plan(tmp_path).must_run(_quad(before), *SESSION)
    assert not _plan(tmp_path).smoke_must_run(_quad(before))


def test_what_tonight_has_measured_is_not_measured_again(tmp_path: Path) -> None:
    run = _plan(tmp_path, night="2026-11-30")
    _finish(run, *SESSION, "2026-11-30")
    _smoke(run, "2026-11-30")
    again = _plan(tmp_path, night="2026-11-30")
    assert not again.must_run(_quad(run), *SESSION)
    assert not again.smoke_must_run(_quad(run))


def test_a_night_that_was_cut_off_is_finished_by_a_plain_run(tmp_path: Path) -> None:
    run = _plan(tmp_path)
    _finish(run, "tp1-usp4", 1, "2026-11-30")
    _finish(run, "tp2-usp2", 1, "2026-11-29")
    plain = _plan(tmp_path)
    assert plain.contract_night(_quad(run)) == "2026-11-30"
    assert not plain.must_run(_quad(run), "tp1-usp4", 1)
    assert plain.must_run(_quad(run), "tp2-usp2", 1)


def test_only_a_night_that_was_asked_for_has_a_deadline(tmp_path: Path) -> None:
    assert _plan(tmp_path).deadline == ""
    assert _plan(tmp_path, night="2026-11-30").deadline == "2026-12-01T06:00"


def test_the_file_that_asks_for_more_is_new_in_every_run(tmp_path: Path) -> None:
    run = _plan(tmp_path)
    run.write_files()
    first = Path(run.asked).read_text()
    run.write_files()
    assert Path(run.asked).read_text() != first


def test_the_sessions_of_a_night_are_those_of_the_first_groups_not_rejected(tmp_path: Path) -> None:
    run = _plan(tmp_path, night="2026-11-30")
    write_record(tmp_path / _quad(run) / "smoke.json", _smoked(run, "rejected", "2026-11-30"))
    contracts = {place.contract for place in run.planned_sessions() if place.contract.startswith("c4-")}
    assert contracts == {run.plan.of_size(4)[1].id}
    assert {place.contract for place in run.progress.pending} >= contracts
