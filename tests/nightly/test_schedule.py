"""Schedules: what is printed, and that a crontab keeps every other line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from anchormatrix.errors import ConfigError
from anchormatrix.nightly.schedule import Schedule, with_line, without_line

SCHEDULE = Schedule("23:05", ("/venv/bin/python", "/home/me/my clone/scripts/nightly.py"), Path("/home/me/my clone"))


def test_the_timer_and_the_service() -> None:
    assert "OnCalendar=*-*-* 23:05:00\n" in SCHEDULE.timer()
    assert 'ExecStart=/venv/bin/python "/home/me/my clone/scripts/nightly.py"\n' in SCHEDULE.service()
    assert "WorkingDirectory=/home/me/my clone\n" in SCHEDULE.service()


def test_the_crontab_line_quotes_the_folder() -> None:
    assert SCHEDULE.crontab_line() == (
        "5 23 * * * cd '/home/me/my clone' && /venv/bin/python '/home/me/my clone/scripts/nightly.py'"
        f" # {SCHEDULE.name}"
    )


def test_a_crontab_gets_the_line_once_and_loses_nothing() -> None:
    other = "0 1 * * * backup\n# a comment\n"
    once = with_line(other, SCHEDULE)
    assert once == other + SCHEDULE.crontab_line() + "\n"
    assert with_line(once, SCHEDULE) == once
    assert without_line(once, SCHEDULE) == other


def test_two_clones_have_two_names() -> None:
    assert SCHEDULE.name != Schedule("23:05", SCHEDULE.command, Path("/home/me/other")).name


@pytest.mark.parametrize("clock", ["24:00", "7", "12:60", "noon", "1:5", ""])
def test_a_time_that_is_none_is_refused(clock: str) -> None:
    with pytest.raises(ConfigError, match="is not a time; expected HH:MM"):
        Schedule(clock, ("x",), Path("/"))


def test_words_that_cron_would_change_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be scheduled"):
        Schedule("23:00", ("echo", "100%"), Path("/"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    schedule = Schedule("23:05", ("/bin/sh", "-c", 'echo "$HOME" done'), tmp_path)
    units = {"service": schedule.service(), "timer": schedule.timer()}
    for kind, text in units.items():
        (tmp_path / f"{schedule.name}.{kind}").write_text(text)
    for kind in units:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--user", str(tmp_path / f"{schedule.name}.{kind}")],
            capture_output=True, text=True, check=False, timeout=60,
            env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/"},
        )  # fmt: skip
        assert schedule.name not in done.stderr, done.stderr
