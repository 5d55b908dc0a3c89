"""Recording sessions: once each, whole, with what was true round them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from measured import circumstances, session_record
from night_results import FORM, contract, place, write_session

from anchormatrix.errors import InputError
from anchormatrix.history.keeping import record_beside
from anchormatrix.history.query import Series, points_of, sessions_of_night, surroundings_at
from anchormatrix.history.record import (
    record_not_started,
    record_results,
    record_session,
)
from anchormatrix.history.store import open_history, read_history
from anchormatrix.history.surroundings import Surroundings, surroundings_of


def test_the_same_session_twice_is_one_row(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30")
    with open_history(tmp_path / "h.sqlite") as history:
        assert record_session(history, path)
        assert not record_session(history, path)
        assert history.connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
        assert history.connection.execute("SELECT count(*) FROM cells").fetchone() == (2,)


def test_a_point_holds_the_repeats_and_their_median(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30", 2.0)
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, path)
        (point,) = points_of(history, Series(contract().id, FORM, "anchor"), 10)
    assert point.night == "2026-11-30"
    assert point.values_s == (2.5, 2.52, 2.48)
    assert point.step_s == 2.5
    assert point.dispersion_pct == pytest.approx(1.6)


def test_windows_of_a_night_are_pooled_and_a_session_measured_again_replaces_its_window(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, write_session(results, "2026-11-30", 9.0, clock="20:00:00"))
        record_session(history, write_session(results, "2026-11-30", 2.0, clock="21:00:00", generation=1))
        record_session(history, write_session(results, "2026-11-30", 2.2, window=2, clock="22:00:00"))
        (point,) = points_of(history, Series(contract().id, FORM, "few"), 10)
    assert point.values_s == (2.0, 2.02, 1.98, 2.2, 2.222, 2.178)


def test_only_the_last_nights_are_read(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with open_history(tmp_path / "h.sqlite") as history:
        for day in range(1, 10):
            record_session(history, write_session(results, f"2026-11-0{day}"))
        series = Series(contract().id, FORM, "few")
        assert [p.night for p in points_of(history, series, 2)] == ["2026-11-08", "2026-11-09"]
        assert [p.night for p in points_of(history, series, 2, "2026-11-05")] == ["2026-11-04", "2026-11-05"]


def test_a_session_that_did_not_run_is_kept_without_numbers(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30", status="did_not_run", reason="out of memory")
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, path)
        found = sessions_of_night(history, "2026-11-30")[place()]
        assert (found.status, found.reason) == ("did_not_run", "out of memory")
        assert points_of(history, Series(contract().id, FORM, "few"), 10) == ()


def test_a_session_left_out_on_purpose_has_no_times_and_is_recorded_once(tmp_path: Path) -> None:
    path = write_session(tmp_path, "2026-11-30", status="skipped", reason="cannot win", started_at="")
    with open_history(tmp_path / "h.sqlite") as history:
        assert [record_session(history, path) for _ in range(2)] == [True, False]
        assert sessions_of_night(history, "2026-11-30")[place()].reason == "cannot win"


def test_a_session_outside_a_sweep_belongs_to_the_night_of_its_start(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "", started_at="2026-12-01T12:00:00", of=contract())
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, path)
        assert list(sessions_of_night(history, "2026-12-01")) == [place()]


def test_what_cannot_be_used_is_named_and_the_rest_is_recorded(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write_session(results, "2026-11-30")
    torn = write_session(results, "2026-11-30", form="tp2-usp1")
    torn.write_text('{"schema": 1, "con')
    nameless = write_session(results, "2026-11-30", window=2, started_at="yesterday")
    with open_history(tmp_path / "h.sqlite") as history:
        new, problems = record_results(history, results)
    assert new == 1
    assert len(problems) == 2
    assert any(str(torn) in text for text in problems)
    assert any(str(nameless) in text and "started_at is 'yesterday'" in text for text in problems)


def test_a_session_of_another_contract_than_its_folder_is_refused(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30")
    path.write_text(json.dumps({**json.loads(path.read_text()), "contract": "c2-0123456789"}))
    with open_history(tmp_path / "h.sqlite") as history, pytest.raises(InputError, match="of its folder"):
        record_session(history, path)


def test_a_measurement_stands_when_it_cannot_be_recorded(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30")
    (tmp_path / "blocked").write_text("")
    assert record_beside(tmp_path / "h.sqlite", path) == ""
    assert not (tmp_path / "results" / "reruns.jsonl").exists()
    assert "correct history.file" in record_beside(tmp_path / "blocked" / "h.sqlite", path)
    with read_history(tmp_path / "results" / ".run" / "history-waiting.sqlite") as waiting:
        assert waiting is not None
        assert waiting.connection.execute("SELECT form, night FROM sessions").fetchall() == [(FORM, "2026-11-30")]


def test_a_cell_measured_again_is_told_at_once(tmp_path: Path) -> None:
    for generation in (0, 1):
        path = write_session(tmp_path, "2026-11-30", generation=generation, clock=f"2{generation}:00:00")
        record_beside(tmp_path / "h.sqlite", path)
    assert len((tmp_path / "reruns.jsonl").read_text().splitlines()) == 2


def test_not_started_is_recorded_once_per_night(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        for reason in ("needs 0:20", "needs 0:21"):
            record_not_started(history, place(), "2026-11-30", reason, datetime(2026, 12, 1, 5, 50))
        found = sessions_of_night(history, "2026-11-30")[place()]
        assert (found.status, found.reason) == ("not_started", "needs 0:21")
        assert history.connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


def test_surroundings_are_the_hottest_card_and_the_sick_ones() -> None:
    assert surroundings_of(session_record(circumstances=circumstances(61.0, 2.5, "Warning"))) == Surroundings(
        "card 1 Warning", 61.0, 0, 2.5, {"tool": "25.2.0"}
    )


def test_missing_circumstances_are_unknown_not_wrong() -> None:
    assert surroundings_of(session_record()) == Surroundings("", None, 0, None, {})


def test_surroundings_come_back_as_recorded(tmp_path: Path) -> None:
    path = write_session(tmp_path / "results", "2026-11-30", circumstances=circumstances(70.0))
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, path)
        assert surroundings_at(history, [1]) == (Surroundings("OK", 70.0, 0, 1.0, {"tool": "25.2.0"}),)
