"""Noise between server starts by history: which sessions count, and how much they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from night_results import contract, write_session

from anchormatrix.history.noise import Before, start_noise
from anchormatrix.history.record import record_session
from anchormatrix.history.store import open_history
from anchormatrix.records.conclusions.selection import StartNoise

# Two starts whose anchor steps are 2.50 s and 2.55 s: log(2.55 ÷ 2.50) = 0.019803, a standard deviation of 1.400 %.
STARTS = (2.0, 2.05)
SD_PCT = 1.4
NOW = Before()


def _record(results: Path, night: str, starts: Sequence[float] = STARTS, hour: int = 20, **other: object) -> Path:
    """A night's starts of one form, one in each window; returns the history."""
    with open_history(results / "h.sqlite") as history:
        for window, step_s in enumerate(starts, 1):
            path = write_session(results, night, step_s, window=window, clock=f"{hour}:0{window}:00", **other)
            record_session(history, path)
    return results / "h.sqlite"


def _nights(results: Path, count: int, **other: object) -> Path:
    """So many nights of two starts each; the form becomes 10 % slower from night to night."""
    for number in range(count):
        starts = tuple(1.1**number * (step_s + 0.5) - 0.5 for step_s in STARTS)
        _record(results, f"2026-11-{number + 1:02d}", starts, **other)
    return results / "h.sqlite"


def test_starts_of_a_night_are_compared_and_a_drift_over_nights_is_no_noise(tmp_path: Path) -> None:
    found = start_noise(_nights(tmp_path, 6), contract(), NOW)
    assert found == StartNoise(sd_pct=SD_PCT, dof=6, from_history=6)


def test_five_degrees_of_freedom_are_too_few(tmp_path: Path) -> None:
    assert start_noise(_nights(tmp_path, 5), contract(), NOW) is None


def test_without_a_history_nothing_is_known(tmp_path: Path) -> None:
    assert start_noise(tmp_path / "none.sqlite", contract(), NOW) is None
    (tmp_path / "bad.sqlite").write_text("no database at all, but long enough to be looked at" * 20)
    assert start_noise(tmp_path / "bad.sqlite", contract(), NOW) is None


def test_the_newest_nights_weigh_as_much_as_twenty_and_older_ones_not_at_all(tmp_path: Path) -> None:
    _record(tmp_path, "2025-01-01", (1.0, 2.0))
    for number in range(10):
        for form in ("tp1-usp2", "tp2-usp1"):
            _record(tmp_path, f"2026-11-{number + 1:02d}", form=form)
    found = start_noise(tmp_path / "h.sqlite", contract(), NOW)
    assert found == StartNoise(sd_pct=SD_PCT, dof=20, from_history=20)


def test_nothing_of_the_night_itself_nor_later_counts(tmp_path: Path) -> None:
    file = _nights(tmp_path, 8)
    assert start_noise(file, contract(), Before(night="2026-11-07")).dof == 6
    assert start_noise(file, contract(), Before(night="2026-11-06")) is None


def test_nothing_begun_at_or_after_the_moment_counts(tmp_path: Path) -> None:
    file = _nights(tmp_path, 8)
    assert start_noise(file, contract(), Before(moment="2026-11-07T20:01:00")).dof == 6
    assert start_noise(file, contract(), Before(moment="2026-11-06T20:02:00")) is None


@pytest.mark.parametrize("other", [{"status": "contaminated"}, {"wobble": (0.0, 0.01)}])
def test_sessions_that_gave_no_whole_cell_are_no_starts(tmp_path: Path, other: dict[str, object]) -> None:
    assert start_noise(_nights(tmp_path, 6, **other), contract(), NOW) is None


def test_a_cell_measured_again_is_compared_with_its_own_kind(tmp_path: Path) -> None:
    _nights(tmp_path, 5)
    file = _record(tmp_path, "2026-11-05", (3.0, 3.0), hour=22, generation=1)  # 20 % and more beside the first ones
    found = start_noise(file, contract(), NOW)
    assert found.dof == 6
    assert found.sd_pct == pytest.approx(SD_PCT * (5 / 6) ** 0.5, abs=0.001)


def test_contracts_of_the_same_cards_count_and_others_of_the_host_where_these_are_few(tmp_path: Path) -> None:
    before, now, elsewhere = contract("25.1.0"), contract(), replace(contract(), id="", host="there")
    four = replace(now, id="", cards=(0, 1, 2, 3), links=(("UB",) * 4,) * 4)
    file = _nights(tmp_path, 6, of=before)
    assert start_noise(file, now, NOW).dof == 6
    assert start_noise(file, four, NOW).dof == 6
    assert start_noise(file, elsewhere, NOW) is None
    for night in range(10, 20):
        _record(tmp_path, f"2026-11-{night}", (2.0, 2.0), of=four, form="tp1-usp4")
    assert start_noise(file, four, NOW) == StartNoise(sd_pct=0.0, dof=10, from_history=10)
    assert start_noise(file, now, NOW) == StartNoise(sd_pct=SD_PCT, dof=6, from_history=6)
