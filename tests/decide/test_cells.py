"""The file of cells: times as a person can read them."""

from __future__ import annotations

from pathlib import Path

from measured import timed_session

from anchormatrix.decide.cells import build_cells, write_cells
from anchormatrix.records.conclusions.cells import ALL, cell_of


def test_a_median_between_two_repeats_has_nine_digits(tmp_path: Path) -> None:
    values_s = (4.9446083, 4.9451787)  # their mean is 4.944893499999999 for a computer
    write_cells(tmp_path / "cells.csv", [cell_of("c4-x", "tp1-usp4", "anchor", ALL, values_s, 0.0115354)])
    assert (tmp_path / "cells.csv").read_text().splitlines()[1] == (
        "c4-x,tp1-usp4,anchor,all,2,4.9448935,0.0115354,true,,4.9446083,4.9451787,4.9446083;4.9451787,"
    )


FINE = {"few": [4.928356, 4.948707, 4.928812], "anchor": [4.932581, 4.950061, 4.929772]}


def test_a_window_that_is_another_digit_by_digit_is_one_measurement_written_twice() -> None:
    cells = build_cells(
        [timed_session("tp1-usp4", 1, FINE), timed_session("tp1-usp4", 2, FINE)], repeats=3, dispersion_pct=2.0
    )
    reasons = {(cell.tier, cell.window): cell.reason for cell in cells}
    twice = (
        "every time equals that of window 1 to the last digit: one measurement, written twice; delete tp1-usp4/w2 and"
        " run again"
    )
    assert reasons["few", "1"] == reasons["anchor", "1"] == ""
    assert reasons["few", "2"] == reasons["anchor", "2"] == twice
    assert reasons["few", ALL] == reasons["anchor", ALL] == f"window 2: {twice}"
    assert [cell.usable for cell in cells if cell.window == ALL] == [False, False]


def test_windows_that_differ_in_one_last_digit_and_times_too_coarse_to_tell_are_measurements() -> None:
    other = {**FINE, "anchor": [4.932581, 4.950061, 4.929773]}
    coarse = {"few": [4.93, 4.95, 4.93], "anchor": [4.93, 4.95, 4.93]}
    for first, second in ((FINE, other), (coarse, coarse)):
        sessions = [timed_session("tp1-usp4", 1, first), timed_session("tp1-usp4", 2, second)]
        assert all(cell.usable for cell in build_cells(sessions, repeats=3, dispersion_pct=2.0))


def test_two_forms_of_equal_times_are_two_measurements() -> None:
    sessions = [timed_session("tp1-usp4", 1, FINE), timed_session("tp2-usp2", 1, FINE)]
    assert all(cell.usable for cell in build_cells(sessions, repeats=3, dispersion_pct=2.0))
