"""The file of cells: times as a person can read them."""

from __future__ import annotations

from pathlib import Path

from anchormatrix.decide.cells import write_cells
from anchormatrix.records.conclusions.cells import ALL, cell_of


def test_a_median_between_two_repeats_has_nine_digits(tmp_path: Path) -> None:
    values_s = (4.9446083, 4.9451787)  # their mean is 4.944893499999999 for a computer
    write_cells(tmp_path / "cells.csv", [cell_of("c4-x", "tp1-usp4", "anchor", ALL, values_s, 0.0115354)])
    assert (tmp_path / "cells.csv").read_text().splitlines()[1] == (
        "c4-x,tp1-usp4,anchor,all,2,4.9448935,0.0115354,true,,4.9446083,4.9451787,4.9446083;4.9451787,"
    )
