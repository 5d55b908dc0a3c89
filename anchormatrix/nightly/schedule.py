"""A nightly sweep in systemd's or cron's words, for one user, installed and removed only when asked."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchormatrix.errors import ConfigError, HostError
from anchormatrix.store.files import write_text

_LIMIT_S = 30.0
_STOP_S = 900


@dataclass(frozen=True)
class Schedule:
    """When and what: ``clock`` is HH:MM of local time; ``command`` is run in ``folder``."""

    clock: str
    command: tuple[str, ...]
    folder: Path

    def __post_init__(self) -> None:
        hour, _, minute = self.clock.partition(":")
        if not (hour.isdigit() and minute.isdigit() and len(minute) == 2 and int(hour) < 24 and int(minute) < 60):
            raise ConfigError(f"{self.clock!r} is not a time", where="--at", expected="HH:MM, as 23:00")
        for word in (*self.command, str(self.folder)):
            if "\n" in word or "%" in word:
                raise ConfigError(
                    f"{word!r} cannot be scheduled", where="command", expected="words without line breaks and %"
                )

    @property
    def name(self) -> str:
        """The unit's name; two clones have two names."""
        return f"anchormatrix-nightly-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    def service(self) -> str:
        """The systemd service. A stop asks first: SIGTERM, and time for servers to end by themselves."""
        return (
            "[Unit]\n"
            f"Description=Nightly sweep of the matrix in {self.folder}\n"
            "\n"
            "[Service]\n"
            "Type=oneshot\n"
            f"WorkingDirectory={_unit_path(self.folder)}\n"
            f"ExecStart={' '.join(_unit_word(word) for word in self.command)}\n"
            f"TimeoutStopSec={_STOP_S}\n"
            "KillMode=mixed\n"
        )

    def timer(self) -> str:
        """The systemd timer. A night missed while the machine was off is started late, and then says that it was."""
        return (
            "[Unit]\n"
            f"Description=When to sweep the matrix in {self.folder}\n"
            "\n"
            "[Timer]\n"
            f"OnCalendar=*-*-* {self.clock}:00\n"
            "Persistent=true\n"
            "\n"
            "[Install]\n"
            "WantedBy=timers.target\n"
        )

    def crontab_line(self) -> str:
        """The crontab line, marked so that it can be found again."""
        hour, minute = self.clock.split(":")
        return (
            f"{int(minute)} {int(hour)} * * * cd {shlex.quote(str(self.folder))} && {shlex.join(self.command)}"
            f" # {self.name}"
        )


def install_systemd(schedule: Schedule, config_home: Path) -> list[Path]:
    """Write the user's units and enable the timer. Raises :class:`HostError` when systemd refuses."""
    folder = config_home / "systemd" / "user"
    files = {f"{schedule.name}.service": schedule.service(), f"{schedule.name}.timer": schedule.timer()}
    for name, text in files.items():
        write_text(folder / name, text)
    _run(("systemctl", "--user", "daemon-reload"))
    _run(("systemctl", "--user", "enable", "--now", f"{schedule.name}.timer"))
    return [folder / name for name in files]


def remove_systemd(schedule: Schedule, config_home: Path) -> list[Path]:
    """Disable the timer and delete the user's units; returns what was deleted."""
    folder = config_home / "systemd" / "user"
    found = [path for end in ("timer", "service") if (path := folder / f"{schedule.name}.{end}").exists()]
    if found:
        _run(("systemctl", "--user", "disable", "--now", f"{schedule.name}.timer"))
        for path in found:
            path.unlink()
        _run(("systemctl", "--user", "daemon-reload"))
    return found


def with_line(crontab: str, schedule: Schedule) -> str:
    """A crontab with this schedule's line in it once; every other line stays as it is."""
    return without_line(crontab, schedule) + schedule.crontab_line() + "\n"


def without_line(crontab: str, schedule: Schedule) -> str:
    """A crontab without this schedule's line."""
    mark = f"# {schedule.name}"
    kept = [line for line in crontab.splitlines() if not line.rstrip().endswith(mark)]
    return "".join(f"{line}\n" for line in kept)


def change_crontab(schedule: Schedule, *, install: bool) -> bool:
    """Put the line into the user's crontab or take it out; says whether anything changed."""
    listed = _run(("crontab", "-l"), empty="no crontab")
    changed = with_line(listed, schedule) if install else without_line(listed, schedule)
    if changed == listed:
        return False
    _run(("crontab", "-"), text=changed)
    return True


def _run(argv: Sequence[str], *, text: str | None = None, empty: str = "") -> str:
    """Run a command of the system; a failure that says ``empty`` means an empty answer, any other one is an error."""
    by_hand = "use the printed text by hand"
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"cannot be run ({error})", where=shlex.join(argv), todo=by_hand) from None
    if done.returncode == 0:
        return done.stdout
    words = done.stderr.strip() or done.stdout.strip()
    if empty and empty in words:
        return ""
    raise HostError(f"ended with exit code {done.returncode}: {words}", where=shlex.join(argv), todo=by_hand)


def _unit_word(word: str) -> str:
    """One word of ExecStart: systemd has its own quoting, and $ is its own."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if any(char in word for char in " \t\"'\\;") else escaped


def _unit_path(path: Path) -> str:
    return str(path).replace("\\", "\\\\")
