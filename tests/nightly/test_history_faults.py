"""Whatever is wrong with the history, the night measures, its outcome is the true one, and nothing is lost for good."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from history_faults import LEFT_ALONE, LOST, MENDED, Fault
from night_results import write_session
from night_world import NIGHT, World

from anchormatrix.history import store
from anchormatrix.history.query import nights_before
from anchormatrix.history.record import record_results
from anchormatrix.history.store import check, open_history
from anchormatrix.records.night import NightOutcome

HOOK = "import pathlib, sys\npathlib.Path(sys.argv[1]).write_text(sys.stdin.read())\n"


def _world(tmp_path: Path) -> World:
    """A night after four recorded ones, of which results/ still holds the last."""
    world = World(tmp_path / "results", [], hook=(sys.executable, "-c", HOOK, str(tmp_path / "told.json")))
    for day in range(26, 30):
        for form in ("tp1-usp2", "tp2-usp1"):
            write_session(world.results, f"2026-11-{day}", form=form)
        with open_history(world.history) as history:
            record_results(history, world.results)
    world.steps = [world.measure("tp1-usp2", "tp2-usp1")]
    return world


def _told(tmp_path: Path) -> tuple[str, list[str]]:
    told = json.loads((tmp_path / "told.json").read_text())
    return told["outcome"], told.get("history", [])


def _nights(world: World) -> list[str]:
    with open_history(world.history) as history:
        return nights_before(history, "9999", 99)


def test_a_sound_history_is_left_as_it_is_and_nothing_is_said(tmp_path: Path) -> None:
    world = _world(tmp_path)
    assert check(world.history) == ""
    assert world.run()[0] is NightOutcome.FINE
    assert _told(tmp_path) == ("fine", [])
    assert not list(world.results.glob("history.sqlite.damaged-*"))
    assert check(world.history) == ""


@pytest.mark.parametrize("fault", MENDED.values(), ids=MENDED.keys())
def test_a_history_of_another_shape_is_made_anew_with_the_rows_it_has(tmp_path: Path, fault: Fault) -> None:
    world = _world(tmp_path)
    fault(world.history)
    assert world.run()[0] is NightOutcome.FINE
    outcome, notes = _told(tmp_path)
    assert outcome == "fine"
    assert "8 sessions of 4 nights are taken over" in " ".join(notes)
    assert _nights(world) == ["2026-11-26", "2026-11-27", "2026-11-28", "2026-11-29", NIGHT]
    with open_history(world.history) as history:
        assert history.connection.execute("SELECT count(*) FROM contracts").fetchone() == (1,)
    aside = [path for path in world.results.glob("history.sqlite.damaged-*") if "-wal" not in path.name]
    assert len([path for path in aside if "-shm" not in path.name]) == 1


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST.keys())
def test_a_history_that_is_lost_is_said_to_be(tmp_path: Path, fault: Fault) -> None:
    world = _world(tmp_path)
    fault(world.history)
    assert world.run()[0] is NightOutcome.FINE
    outcome, notes = _told(tmp_path)
    assert outcome == "fine"
    assert "the history is new" in " ".join(notes)
    assert _nights(world) == ["2026-11-29", NIGHT]  # what results/ held when the night began


@pytest.mark.parametrize("fault", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_cannot_be_recorded_waits_and_is_recorded_at_the_next_chance(tmp_path: Path, fault: Fault) -> None:
    world = _world(tmp_path)
    kept = tmp_path / "kept.sqlite"
    shutil.copy(world.history, kept)
    fault(world.history)
    assert world.run()[0] is NightOutcome.FINE
    outcome, notes = _told(tmp_path)
    assert outcome == "fine"
    assert "wait in" in " ".join(notes)
    for path in world.results.glob("history.sqlite*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copy(kept, world.history)
    world.night, world.now = "2026-12-01", world.now.replace(month=12, day=1)
    write_session(world.results, "2026-12-01", form="tp1-usp2")  # the night's result is replaced before it is recorded
    world.steps, world.calls = [world.measure("tp1-usp2", "tp2-usp1")], []
    assert world.run()[0] is NightOutcome.FINE
    assert _nights(world) == ["2026-11-26", "2026-11-27", "2026-11-28", "2026-11-29", NIGHT, "2026-12-01"]


def test_a_history_that_another_process_holds_for_the_whole_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_S", 0.2)
    world = _world(tmp_path)
    code = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA locking_mode = EXCLUSIVE')\n"
        "c.execute('BEGIN EXCLUSIVE')\nprint('held', flush=True)\ninput()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, world.history], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert world.run()[0] is NightOutcome.FINE
    finally:
        holder.communicate("\n")
    outcome, notes = _told(tmp_path)
    assert outcome == "fine"
    assert "is held by another process" in " ".join(notes)
    assert _nights(world)[-1] == "2026-11-29"


def test_without_room_for_a_stand_in_the_night_is_judged_by_what_results_hold(tmp_path: Path) -> None:
    world = _world(tmp_path)
    LEFT_ALONE["a folder"](world.history)
    (world.results / ".run" / "history-waiting.sqlite").mkdir(parents=True)
    assert world.run()[0] is NightOutcome.FINE
    outcome, notes = _told(tmp_path)
    assert outcome == "fine"
    assert any(text.startswith("history: nothing is kept of it now") for text in notes)


def test_a_history_that_lost_nights_says_how_many(tmp_path: Path) -> None:
    world = _world(tmp_path)
    assert world.run()[0] is NightOutcome.FINE
    with sqlite3.connect(world.history) as connection:
        connection.execute("DELETE FROM sessions WHERE night < '2026-11-29'")
        connection.execute("DELETE FROM cells WHERE night < '2026-11-29'")
    connection.close()
    world.night, world.now = "2026-12-01", world.now.replace(month=12, day=1)
    world.steps, world.calls = [world.measure("tp1-usp2", "tp2-usp1")], []
    assert world.run()[0] is NightOutcome.FINE
    assert _told(tmp_path)[1] == [
        f"the history has lost nights: it holds 2 of the 5 nights known after {NIGHT}, tonight is compared with those"
    ]
