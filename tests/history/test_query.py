"""Cells measured again, pruning, export, listing."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path

import pytest
from measured import circumstances
from night_results import FORM, contract, place, write_session

from anchormatrix.history.export import COLUMNS, export_csv, export_parquet, prune
from anchormatrix.history.nights import begin, end, night_lines
from anchormatrix.history.query import median_step
from anchormatrix.history.record import record_not_started, record_session
from anchormatrix.history.reruns import rerun_rows, write_reruns
from anchormatrix.history.store import History, open_history
from anchormatrix.records.night import NightOutcome
from anchormatrix.records.rerun import RerunCell


def _two_nights(history: History, results: Path) -> None:
    for night in ("2026-11-29", "2026-11-30"):
        record_session(history, write_session(results, night))


def test_a_cell_measured_again_shows_old_and_new_value_over_all_windows(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        for window in (1, 2):
            record_session(history, write_session(tmp_path, "2026-11-29", 2.0, window=window, clock=f"0{window}:00:00"))
        for window in (1, 2):
            again = write_session(
                tmp_path, "2026-11-30", 2.2, window=window, generation=1, clock=f"0{window}:00:00",
                circumstances=circumstances(temperature_c=65.0),
            )  # fmt: skip
            record_session(history, again)
        few, anchor = rerun_rows(history)
        write_reruns(history, tmp_path)
    assert (few.form, few.tier, anchor.tier) == (FORM, "few", "anchor")
    assert few.before.step_s == 2.0
    assert few.after.step_s == 2.2
    assert few.after.dispersion_pct == pytest.approx(2.0)
    assert few.changed == ("hottest card 50 °C → 65 °C",)
    assert few.when == "2026-11-30T02:00:00+00:00"
    lines = (tmp_path / "reruns.jsonl").read_text().splitlines()
    assert [json.loads(line)["schema"] for line in lines] == [1, 1]


def test_another_night_is_no_cell_measured_again(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _two_nights(history, tmp_path)
        assert rerun_rows(history) == []
        write_reruns(history, tmp_path)
    assert not (tmp_path / "reruns.jsonl").exists()


def test_a_cell_that_did_not_run_the_second_time_has_no_new_value(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        record_session(history, write_session(tmp_path, "2026-11-29"))
        record_session(history, write_session(tmp_path, "2026-11-30", generation=1, status="did_not_run"))
        assert [row.after for row in rerun_rows(history)] == [RerunCell(), RerunCell()]


def test_pruning_keeps_the_last_nights_whole(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _two_nights(history, tmp_path)
        assert prune(history, 2) == 0
        assert prune(history, 1) == 1
        assert history.connection.execute("SELECT night FROM sessions").fetchall() == [("2026-11-30",)]
        assert history.connection.execute("SELECT DISTINCT night FROM cells").fetchall() == [("2026-11-30",)]


def test_csv_and_parquet_hold_the_same_rows(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        _two_nights(history, tmp_path)
        record_not_started(history, place(window=2), "2026-11-30", "deadline", datetime(2026, 12, 1, 5))
        assert export_csv(history, tmp_path / "h.csv") == 5
        assert export_parquet(history, tmp_path / "h.parquet") == 5
    with (tmp_path / "h.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "h.parquet")
    assert tuple(table.column_names) == COLUMNS
    assert [row["tier"] for row in rows] == ["anchor", "few", "anchor", "few", ""]
    assert table.column("step_s").to_pylist() == [2.5, 2.0, 2.5, 2.0, None]
    assert [row["step_s"] for row in rows] == ["2.5", "2.0", "2.5", "2.0", ""]
    assert sorted(path.name for path in tmp_path.glob("*.part")) == []


def test_the_listing_names_what_each_night_was(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        assert night_lines(history, 5) == ["the history is empty"]
        _two_nights(history, tmp_path)
        for night in ("2026-11-30", "2026-12-01"):
            begin(history, night, datetime(2026, 12, 1, 23), datetime(2026, 12, 2, 6))
        end(history, "2026-11-30", datetime(2026, 12, 1), NightOutcome.FINE)
        assert night_lines(history, 5) == [
            "2026-12-01  half-finished       no session  (no contract)",
            f"2026-11-30  fine                1 measured  ({contract().id})",
            f"2026-11-29  single runs         1 measured  ({contract().id})",
        ]


def test_the_usual_step_time_is_the_median_of_nights(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        assert median_step(history, contract().id, FORM) is None
        _two_nights(history, tmp_path)
        assert median_step(history, contract().id, FORM) == 2.0
