"""Deeds of other people: files of theirs in the lease folder, a login that prints, a clone that works beside ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from campaigns.faults import injectors
from campaigns.faults.project import make_project
from campaigns.faults.stage import Deed, Stage

# in the folder before it gives up the right to walk there
_BECOME_NOBODY = "import fcntl, os, time; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
_CLONE_S = 120.0

# what another user does in the lease folder, with PATH the lock file of a card; ends at once unless it waits
_DOES: Mapping[str, str] = {
    "a pipe": "os.mkfifo(PATH)",
    "deep brackets": "open(PATH, 'w').write('[' * 8000)",
    "five megabytes": "open(PATH, 'w').write('x' * 5_000_000)",
    "a lie of suspicion": 'open(PATH, \'w\').write(\'{"suspect": "burnt", "user": "root"}\')',
    "a link to another file": "os.symlink('/etc/hostname', PATH)",
    "a link to nothing": "os.symlink('/nonexistent', PATH)",
    "a folder": "os.mkdir(PATH)",
    "mode 000": "os.close(os.open(PATH, os.O_CREAT | os.O_WRONLY, 0o000))",
    "terminal escapes": 'open(PATH, \'w\').write(\'{"user": "\\x1b]0;owned\\x07", "host": "\\x1b[2J"}\')',
    "not UTF-8": "open(PATH, 'wb').write(b'\\xff\\xfe\\x00' * 40)",
    "a shared lock": "f = os.open(PATH, os.O_RDONLY | os.O_CREAT, 0o666); fcntl.flock(f, fcntl.LOCK_SH); HOLD",
    "a lock": "f = os.open(PATH, os.O_RDWR | os.O_CREAT, 0o666); fcntl.flock(f, fcntl.LOCK_EX); HOLD",
}
STRANGERS = tuple(_DOES)


def needs_root() -> str:
    """Why nobody can act as another user here; empty when one can."""
    return "" if os.geteuid() == 0 else "another user's files need root"


def stranger(what: str, card: int) -> Deed:
    """Let another user take the place of a card's lock file; what is there is removed first."""

    def deed(stage: Stage) -> None:
        folder = stage.project.host / "leases"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
        path = folder / f"card-{card}.lock"
        path.unlink(missing_ok=True)
        words = _DOES[what].replace("PATH", repr(path.name)).replace("HOLD", "print(flush=True); time.sleep(3600)")
        process = subprocess.Popen(
            [sys.executable, "-c", f"{_BECOME_NOBODY}; {words}"],
            cwd=folder,
            env={"PATH": os.defpath},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        stage.lifting.callback(_removed, path)
        stage.lifting.callback(process.wait)
        stage.lifting.callback(process.kill)

    return deed


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


_PRINTS = {
    "a greeting": "echo 'Welcome to node 7'; echo 'Last maintenance: Sunday'",
    "JSON": 'echo \'{"pid": 1, "ok": true}\'',
    "no end of line": "printf 'loading modules ... '",
    "escapes": "printf '\\033]0;node7\\007\\033[2J'",
    "to both streams": "echo hello; echo hello >&2",
}
LOGINS = tuple(_PRINTS)


def printing_login(what: str) -> Deed:
    """Reach the host over SSH, with a shell whose start-up file prints."""

    def deed(stage: Stage) -> None:
        startup = stage.project.folder / "startup.sh"
        startup.write_text(_PRINTS[what] + "\n", encoding="utf-8")
        injectors.over_ssh(stage, f"SetEnv BASH_ENV={startup}\n")
        stage.lifting.callback(startup.write_text, "")

    return deed


def another_clone(stage: Stage) -> None:
    """Let another clone smoke the same cards meanwhile."""
    folder = stage.project.folder.with_name(f"{stage.project.folder.name}-clone")
    shutil.rmtree(folder, ignore_errors=True)
    clone = make_project(folder)
    clone.host.symlink_to(stage.project.host)
    shutil.copy(stage.project.folder / "scenario.yaml", clone.folder / "scenario.yaml")
    run = clone.start("smoke")
    stage.clones.append((clone, run))
    stage.lifting.callback(run.wait, _CLONE_S)
