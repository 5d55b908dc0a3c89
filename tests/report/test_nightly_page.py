"""The review of a night and its page."""

from __future__ import annotations

from pathlib import Path

from measured import circumstances
from night_results import FORM, contract, place, write_session
from report_results import HOSTILE, settings

from anchormatrix.history.nights import last_nights
from anchormatrix.history.record import record_session
from anchormatrix.history.review import Limits, Review, review_night
from anchormatrix.history.store import History, open_history
from anchormatrix.records.night import NightOutcome
from anchormatrix.report.nightly_page import changes, opening, page

LIMITS = Limits(3.0, 1.0)
NIGHTS = [f"2026-11-{day:02}" for day in range(1, 11)]
TONIGHT = "2026-11-11"


def _history_of(history: History, results: Path, nights: list[str], step_s: float = 2.0, **other: object) -> None:
    for index, night in enumerate(nights):
        record_session(history, write_session(results, night, step_s * (1 + 0.003 * (index % 3)), **other))


def _page(history: History, review: Review) -> str:
    return page(review, last_nights(history, 10), settings())


def test_a_regression_comes_first_with_the_circumstance_that_changed(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        hot = circumstances(temperature_c=71.0, tool="25.3.0")
        record_session(history, write_session(tmp_path, TONIGHT, 2.2, circumstances=hot))
        review = review_night(history, TONIGHT, [place()], LIMITS)
        text = _page(history, review)
    assert review.outcome is NightOutcome.REGRESSION
    first = changes(review)[0]
    assert first.startswith("tp1-usp2 few on 2 cards is 9.7 % slower tonight (before 2.00")
    assert first.endswith("with it changed tool 25.2.0 → 25.3.0; hottest card 50 °C → 71 °C")
    assert opening(review) == "Regression: 2 findings beyond noise, 1 of 1 sessions measured."
    assert "What changed since last night" in text
    assert "<svg" in text


def test_nothing_recorded_changed_is_said_too(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        record_session(history, write_session(tmp_path, TONIGHT, 2.2))
        assert changes(review_night(history, TONIGHT, [place()], LIMITS))[0].endswith(
            "no recorded circumstance changed with it"
        )


def test_a_quiet_night_is_fine(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, [*NIGHTS, TONIGHT])
        review = review_night(history, TONIGHT, [place()], LIMITS)
        assert "Nothing beyond noise." in _page(history, review)
    assert opening(review) == "Fine: 1 of 1 sessions measured, nothing became slower beyond noise."


def test_a_new_contract_is_a_boundary_and_never_a_regression(tmp_path: Path) -> None:
    new = contract(driver="26.0.0")
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        record_session(history, write_session(tmp_path, TONIGHT, 3.0, of=new, version=2))
        review = review_night(history, TONIGHT, [place(of=new)], LIMITS)
        text = _page(history, review)
    assert review.outcome is NightOutcome.FINE
    (boundary,) = review.boundaries
    assert (boundary.night, boundary.before, boundary.after) == (TONIGHT, contract().id, new.id)
    assert boundary.changed == ("driver: 25.2.0 → 26.0.0",)
    assert [item.series.contract for item in review.series] == [new.id] * 2
    assert len(review.retired) == 2
    assert "driver: 25.2.0 → 26.0.0" in text


def test_a_noisy_night_is_shown_but_not_judged(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        record_session(history, write_session(tmp_path, TONIGHT, 3.0, wobble=(0.0, 0.05, -0.05)))
        review = review_night(history, TONIGHT, [place()], LIMITS)
        assert "not judged: dispersion above 3 %" in _page(history, review)
    assert review.called == ()


def test_a_session_that_was_not_started_says_why(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        review = review_night(history, TONIGHT, [place(), place(window=2)], LIMITS)
        assert opening(review) == "Could not measure everything: 0 of 2 sessions measured."
        assert changes(review) == [
            f"2 sessions not started: it was not reached (tp1-usp2 window 1 of {contract().id} and others)"
        ]


def test_a_form_that_no_longer_runs_is_a_regression(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        record_session(history, write_session(tmp_path, TONIGHT, status="did_not_run", reason="out of memory"))
        review = review_night(history, TONIGHT, [place()], LIMITS)
    assert review.outcome is NightOutcome.REGRESSION
    assert changes(review) == [f"tp1-usp2 window 1 of {contract().id} no longer runs through: out of memory"]


def test_missed_nights_are_listed(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, [*NIGHTS, "2026-11-13"])
        review = review_night(history, "2026-11-13", [place()], LIMITS)
    assert changes(review) == ["no sweep in 2 nights before: 2026-11-11, 2026-11-12"]


def test_everything_from_outside_is_escaped(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _history_of(history, tmp_path, NIGHTS)
        hostile = circumstances(health=HOSTILE)
        write = write_session(tmp_path, TONIGHT, 2.4, circumstances=hostile)
        record_session(history, write)
        lost = write_session(tmp_path, TONIGHT, window=2, status="void", reason=HOSTILE)
        record_session(history, lost)
        text = _page(history, review_night(history, TONIGHT, [place(), place(window=2)], LIMITS))
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_an_empty_history_still_makes_a_page(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        review = review_night(history, TONIGHT, [], LIMITS, problem="the host cannot be read: it does not answer")
        text = _page(history, review)
    assert "Could not measure everything: the host cannot be read: it does not answer" in text
    assert FORM not in text
