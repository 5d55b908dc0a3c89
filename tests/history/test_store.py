"""The history file: made, migrated, killed, damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from night_results import write_session

from anchormatrix.errors import InputError
from anchormatrix.history import schema
from anchormatrix.history.record import record_session
from anchormatrix.history.store import check, move_aside, open_history, read_history

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_history_is_in_wal_mode_with_the_newest_schema(tmp_path: Path) -> None:
    with open_history(tmp_path / "deep" / "h.sqlite") as history:
        assert history.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert history.connection.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
        assert history.notice == ""


def test_an_older_schema_is_migrated_and_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, session = tmp_path / "h.sqlite", write_session(tmp_path / "results", "2026-11-30")
    with open_history(file) as history:
        record_session(history, session)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE sessions ADD COLUMN colour TEXT"))
    with open_history(file) as history:
        assert history.connection.execute("SELECT form, colour FROM sessions").fetchall() == [("tp1-usp2", None)]


def test_a_migration_that_fails_leaves_the_schema_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "h.sqlite"
    with open_history(file):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE new (a TEXT); SELECT * FROM nowhere"))
        with pytest.raises(InputError, match="cannot be used"), open_history(file):
            pass
    with open_history(file) as history:
        assert history.connection.execute("SELECT name FROM sqlite_master WHERE name = 'new'").fetchall() == []


def test_a_history_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="has schema 99; expected 1"), open_history(file):
        pass
    with pytest.raises(InputError, match="has schema 99"), read_history(file):
        pass
    assert file.exists()


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_kept_aside_and_said(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "h.sqlite"
    file.write_bytes(content)
    assert check(file)
    with open_history(file) as history:
        assert "is damaged" in history.notice
        assert "a new history begins" in history.notice
    (aside,) = tmp_path.glob("h.sqlite.damaged-*")
    assert aside.read_bytes() == content
    assert check(file) == ""


def test_damage_inside_is_found_by_the_check_and_moved_aside(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    with open_history(file) as history, history.transaction() as connection:
        for number in range(300):
            row = (f"2026-{number:04}", "x" * 200)
            connection.execute("INSERT INTO nights (night, started_at, deadline_at) VALUES (?, ?, '')", row)
    content = bytearray(file.read_bytes())
    content[-12000:] = b"\xaa" * 12000
    file.write_bytes(content)
    assert check(file)
    assert "is kept as" in move_aside(file)
    assert list(tmp_path.glob("h.sqlite.damaged-*"))


def test_moving_a_sound_history_aside_does_nothing(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    with open_history(file):
        pass
    assert "another process" in move_aside(file)
    assert file.exists()


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with read_history(tmp_path / "h.sqlite") as history:
        assert history is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"cannot be made .*correct history.file"),
        open_history(tmp_path / "file" / "h"),
    ):
        pass


def test_a_writer_killed_between_its_statements_leaves_no_half_session(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    code = (
        "import os, signal, sys\n"
        "from anchormatrix.history.store import open_history\n"
        "with open_history(sys.argv[1]) as history, history.transaction() as connection:\n"
        "    connection.execute(\"INSERT INTO nights (night, started_at, deadline_at) VALUES ('n', '', '')\")\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, file], cwd=ROOT, env={**os.environ}, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert check(file) == ""
    with open_history(file) as history:
        assert history.connection.execute("SELECT count(*) FROM nights").fetchone() == (0,)
