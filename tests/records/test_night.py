"""Nights: names, deadlines, outcomes, missed nights; the deadline check against history."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from night_results import contract, place, write_session

from anchormatrix.errors import ConfigError, NightError
from anchormatrix.history.deadline import check_deadline
from anchormatrix.history.progress import Durations, Progress, read_durations
from anchormatrix.history.query import sessions_of_night
from anchormatrix.history.record import record_session
from anchormatrix.history.store import open_history
from anchormatrix.records.night import (
    NightOutcome,
    Tonight,
    deadline_of,
    duration_words,
    missed_nights,
    night_of,
    outcome_of,
    resolve_night,
)

MEASURED = Tonight(place(), "measured", "", True)


@pytest.mark.parametrize(
    ("moment", "night"),
    [
        (datetime(2026, 11, 30, 23), "2026-11-30"),
        (datetime(2026, 12, 1, 1), "2026-11-30"),
        (datetime(2026, 12, 1, 11, 59), "2026-11-30"),
        (datetime(2026, 12, 1, 12), "2026-12-01"),
    ],
)
def test_a_night_runs_from_noon_to_noon(moment: datetime, night: str) -> None:
    assert night_of(moment) == night
    assert resolve_night("auto", moment) == night


@pytest.mark.parametrize(
    ("clock", "at"), [("06:00", datetime(2026, 12, 1, 6)), ("23:30", datetime(2026, 11, 30, 23, 30))]
)
def test_the_deadline_is_the_first_such_time_after_the_nights_noon(clock: str, at: datetime) -> None:
    assert deadline_of("2026-11-30", clock) == at


def test_a_night_that_is_no_date_is_refused() -> None:
    with pytest.raises(ConfigError, match="'2026-11-31' is not a night"):
        resolve_night("2026-11-31", datetime(2026, 11, 30))


@pytest.mark.parametrize(
    ("sessions", "regressions", "problem", "outcome"),
    [
        ([MEASURED], 0, "", NightOutcome.FINE),
        ([MEASURED], 1, "", NightOutcome.REGRESSION),
        ([MEASURED], 1, "the report failed", NightOutcome.REGRESSION),
        ([MEASURED], 0, "the report failed", NightOutcome.COULD_NOT_MEASURE),
        ([], 0, "", NightOutcome.COULD_NOT_MEASURE),
        ([Tonight(place(), "did_not_run", "out of memory", True)], 0, "", NightOutcome.REGRESSION),
        ([MEASURED, Tonight(place(), "did_not_run", "never ran", False)], 0, "", NightOutcome.FINE),
        ([MEASURED, Tonight(place(), "skipped", "cannot win any more", True)], 0, "", NightOutcome.FINE),
        ([MEASURED, Tonight(place(), "void", "no effect, as always", False)], 0, "", NightOutcome.FINE),
        ([MEASURED, Tonight(place(), "contaminated", "a tenant", True)], 0, "", NightOutcome.COULD_NOT_MEASURE),
        ([MEASURED, Tonight(place(), "not_started", "deadline", False)], 0, "", NightOutcome.COULD_NOT_MEASURE),
    ],
)
def test_outcomes(sessions: list[Tonight], regressions: int, problem: str, outcome: NightOutcome) -> None:
    assert outcome_of(sessions, regressions, problem) is outcome


def test_exit_codes_tell_a_scheduler_apart() -> None:
    assert [outcome.exit_code for outcome in NightOutcome] == [0, 1, 3]


def test_missed_nights_follow_the_usual_interval() -> None:
    daily = [f"2026-11-{day}" for day in range(10, 21)]
    assert missed_nights(daily, "2026-11-21") == []
    assert missed_nights(daily, "2026-11-24") == ["2026-11-21", "2026-11-22", "2026-11-23"]
    weekly = ["2026-11-01", "2026-11-08", "2026-11-15"]
    assert missed_nights(weekly, "2026-11-22") == []
    assert missed_nights(weekly, "2026-11-29") == ["2026-11-22"]
    assert missed_nights(["2026-11-01"], "2026-11-29") == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "unknown"), (59.6, "60 s"), (180, "0:03 h"), (2400, "0:40 h"), (5400, "1:30 h")]
)
def test_durations_in_words(seconds: float | None, words: str) -> None:
    assert duration_words(seconds) == words


def test_what_cannot_finish_is_not_started_and_recorded_so(tmp_path: Path) -> None:
    file, deadline = tmp_path / "h.sqlite", datetime(2026, 12, 1, 6)
    with open_history(file) as history:
        record_session(history, write_session(tmp_path / "results", "2026-11-29", duration_s=1200.0))
    check_deadline(file, tmp_path / "results", place(), "2026-11-30", deadline, datetime(2026, 12, 1, 5, 39))
    with pytest.raises(NightError, match=r"deadline 06:00: needs about 0:20 h, 0:19 h left"):
        check_deadline(file, tmp_path / "results", place(), "2026-11-30", deadline, datetime(2026, 12, 1, 5, 41))
    with open_history(file) as history:
        found = sessions_of_night(history, "2026-11-30")[place()]
    assert (found.status, found.reason) == ("not_started", "deadline 06:00: needs about 0:20 h, 0:19 h left")


def test_without_history_only_the_deadline_itself_counts(tmp_path: Path) -> None:
    file, deadline = tmp_path / "h.sqlite", datetime(2026, 12, 1, 6)
    check_deadline(file, tmp_path / "results", place(), "2026-11-30", deadline, datetime(2026, 12, 1, 5, 59))
    with pytest.raises(NightError, match="deadline 06:00: 2026-12-01 06:00 has passed"):
        check_deadline(file, tmp_path / "results", place(), "2026-11-30", deadline, datetime(2026, 12, 1, 6))


def test_durations_are_the_median_of_the_last_five_and_fall_back_to_the_form(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        for day, taken in enumerate((500.0, 10.0, 12.0, 11.0, 14.0, 90.0), start=1):
            record_session(history, write_session(tmp_path / "results", f"2026-11-0{day}", duration_s=taken))
    found = read_durations(tmp_path / "h.sqlite", [contract().id])
    assert found.of(place()) == 12.0
    assert found.of(place(window=2)) == 12.0
    assert found.of(place(form="tp2-usp1")) == 12.0
    assert found.of(place(of=contract("other"))) is None


def test_progress_says_where_it_is_what_is_next_and_how_long_it_takes() -> None:
    a, b = place(window=1), place(window=2)
    progress = Progress((a, b), Durations({a: 600.0, b: 1200.0}))
    assert f"{progress:{a.contract} {a.form} 1}" == "session 1 of 2, about 0:30 h left, next tp1-usp2 window 2"
    assert f"{progress:{a.contract} {a.form} 2}" == "session 2 of 2, about 0:20 h left"
    assert Progress((a,), Durations({})).at(a) == "session 1 of 1, time left unknown before the first history"
    assert progress.at(place("tp2-usp1")) == "beyond the sessions planned when the run began"
