"""Speed-up between sizes: its base, and what it is worth on an unstable host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_results import settings, write_results

from anchormatrix.report.build import build_report
from anchormatrix.report.model import Report
from anchormatrix.report.tables import speedup

pytestmark = pytest.mark.usefixtures("undrawn")


def build(root: Path, **options: Any) -> Report:
    write_results(root, selection=False, attribution=False, **options)
    return build_report(settings(), root, root / "matrix_report")


def test_speed_up_is_over_the_same_arm_at_the_smallest_size(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(2, 4))
    rows = [(row[1], *row[6:]) for row in speedup.table(report).rows]
    assert rows == [
        ("tp1-usp2", "–", "–", "–", "usable"),
        ("tp2-usp1", "–", "–", "–", "usable"),
        ("tp1-usp4", "tp1-usp2 on 2 cards", "2.00 ×", "100 %", "usable"),
        ("tp2-usp2", "tp2-usp1 on 2 cards", "2.00 ×", "100 %", "usable"),
    ]


def test_one_card_is_the_base_of_every_arm_and_unstable_cells_are_for_orientation_only(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(1, 2), noise=20)
    assert {one.verdict.value.status for one in report.measured if one.verdict.value} == {"unstable"}
    unstable = "unstable: orientation only"
    rows = [(row[1], *row[6:]) for row in speedup.table(report).rows]
    assert rows == [
        ("tp1-usp1", "–", "–", "–", unstable),
        ("tp1-usp2", "tp1-usp1 on 1 card", "1.80 ×", "90 %", unstable),
        ("tp2-usp1", "tp1-usp1 on 1 card", "1.64 ×", "82 %", unstable),
    ]
    assert speedup.table(report).bad == {0, 1, 2}


def test_one_size_alone_has_no_speed_up(tmp_path: Path) -> None:
    table = speedup.table(build(tmp_path, sizes=(2,)))
    assert (table.rows, table.empty) == ((), "Fewer than two sizes have a step time at the anchor tier.")
