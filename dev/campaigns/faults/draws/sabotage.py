"""The deeds that draws add to the catalogue's: disks with a little space left, any file damaged in any way, the history
broken, characters that a terminal obeys, other runs beside, configurations that cannot be read.

What a deed decides at random is drawn before it; a share from 0 to 1 picks among what there is at the moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from campaigns.faults import injectors
from campaigns.faults.draws.judges import judge_same_tree, tree
from campaigns.faults.stage import Deed, Stage

_DISK_MB = 128
_REFUSED_S, _REFUSED_LINES = 60.0, 12
_NO_RESULTS = ("logs", "benchmarks", "history.sqlite")  # what jobs print, and what is broken in ways of its own
_CONTROL = b"\n\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x9b31m\x08\x7fTraceback of a terminal\n"


# -- disks ------------------------------------------------------------------------------------------------------------


def own_disk(folder: str) -> Deed:
    """Put a folder of the project, with what it holds, on a disk of its own until the fault is over."""

    def deed(stage: Stage) -> None:
        path, aside = stage.project.folder / folder, stage.project.folder / f"{folder.replace('/', '-')}-aside"
        path.mkdir(parents=True, exist_ok=True)
        shutil.copytree(path, aside, symlinks=True)
        injectors.mount(stage, "-t", "tmpfs", "-o", f"size={_DISK_MB}m", "tmpfs", str(path))
        subprocess.run(["cp", "-a", f"{aside}/.", str(path)], check=True)
        shutil.rmtree(aside)

    return deed


def fill_to(folder: str, free_bytes: int) -> Deed:
    """Fill the disk of a folder until so many bytes are left."""

    def deed(stage: Stage) -> None:
        path = stage.project.folder / folder
        injectors.fill(stage, path)
        filler = path / ".filler"
        os.truncate(filler, max(0, filler.stat().st_size - free_bytes))

    return deed


# -- damage -----------------------------------------------------------------------------------------------------------


def damage_any(which: float, how: str, at: float) -> Deed:
    """Damage one result file, whichever stands at the share ``which`` of all, without a trace in its times."""

    def deed(stage: Stage) -> None:
        results = stage.project.results
        files = [path for path in sorted(results.rglob("*")) if path.is_file() and _is_result(path, results)]
        if not files:
            stage.problems.append("there was nothing to damage")
            return
        path = files[int(which * len(files))]
        spoil(path, how, at)
        name = path.relative_to(results)
        stage.spoiled |= _sessions_of(results, path)
        stage.notes.append(f"damaged {name}")

    return deed


def spoil(path: Path, how: str, at: float) -> None:
    """Change a file's content and leave its times."""
    content, times = path.read_bytes(), path.stat()
    spoilt = SPOILT[how](content, at)
    if spoilt is None:
        path.unlink()
        return
    path.write_bytes(spoilt)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _sessions_of(results: Path, path: Path) -> set[str]:
    """The sessions that a damaged file belongs to; a capture belongs to that of its form's first window."""
    parts = path.relative_to(results).parts
    if len(parts) > 3 and parts[2] == "capture":
        return {f"{parts[0]}/{parts[1]}/w1/session.json"}
    if len(parts) == 4:
        return {"/".join((*parts[:3], "session.json"))}
    return set()


def _is_result(path: Path, results: Path) -> bool:
    name = path.relative_to(results)
    kept = name.parts[0] not in _NO_RESULTS and "matplotlib" not in name.parts
    return kept and not name.name.startswith((".", "history.")) and not name.name.endswith(".damaged")


def _changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :] if content else content


def _digit_changed(content: bytes, at: float) -> bytes:
    digits = [place for place, byte in enumerate(content) if 0x30 <= byte <= 0x39]
    if not digits:
        return _changed(content, int(at * len(content)))
    place = digits[int(at * len(digits))]
    return content[:place] + bytes([0x30 + (content[place] - 0x30 + 4) % 10]) + content[place + 1 :]


SPOILT: Mapping[str, Callable[[bytes, float], bytes | None]] = {
    "one byte changed": lambda content, at: _changed(content, int(at * len(content))),
    "one digit changed": _digit_changed,
    "cut in the middle": lambda content, at: content[: int(at * len(content))],
    "emptied": lambda content, at: b"",
    "deleted": lambda content, at: None,
    "garbage": lambda content, at: b"\x00\xff{]" * 64,
}


# -- history ----------------------------------------------------------------------------------------------------------


def break_history(how: str, at: float) -> Deed:
    """Damage the history: as any file, or in what only a database has."""

    def deed(stage: Stage) -> None:
        path = stage.project.results / "history.sqlite"
        if not path.is_file():
            stage.problems.append("there was no history to break")
        elif how in SPOILT:
            spoil(path, how, at)
        elif how == "held lock":
            words = [sys.executable, "-c", _HOLDER.format(path=str(path))]
            holder = subprocess.Popen(words, cwd="/", env={"PATH": os.defpath})
            stage.lifting.callback(holder.wait)
            stage.lifting.callback(holder.kill)
        elif how == "a folder in its place":
            path.unlink()
            path.mkdir()
        elif how == "immutable":
            subprocess.run(["chattr", "+i", str(path)], check=False, capture_output=True)
            stage.lifting.callback(subprocess.run, ["chattr", "-i", str(path)], check=False, capture_output=True)
        else:
            with contextlib.closing(sqlite3.connect(path)) as history:
                history.executescript(_STATEMENTS[how])

    return deed


_HOLDER = "import sqlite3, time; sqlite3.connect({path!r}).execute('BEGIN EXCLUSIVE'); time.sleep(3600)"
_STATEMENTS = {
    "table missing": "DROP TABLE cells",
    "column missing": "ALTER TABLE sessions DROP COLUMN load",
    "another version": "PRAGMA user_version = 987",
    "rows without their session": "PRAGMA foreign_keys = OFF; DELETE FROM sessions",
}
HISTORY_WAYS = (*SPOILT, "held lock", "a folder in its place", "immutable", *_STATEMENTS)


# -- words ------------------------------------------------------------------------------------------------------------


def print_control_characters(stage: Stage) -> None:
    """Let the running server's log hold what a terminal obeys, then let the server die so that its log is shown."""
    logs = [path for job in stage.project.jobs() for path in [Path(f"/proc/{job.pid}/fd/1")] if path.exists()]
    if not logs:
        stage.problems.append("there was no server to print")
        return
    for log in logs:
        with contextlib.suppress(OSError), log.resolve().open("ab") as stream:
            stream.write(_CONTROL)
    injectors.kill_server(stage)


def dry_run(stage: Stage) -> None:
    """List what a run would do: it ends well or in an error; when nothing else runs it changes nothing."""
    alone = stage.run is None or stage.run.process.poll() is not None
    before = tree(stage.project.results)
    run = stage.project.start("matrix_report", "-n", env=stage.env)
    if run.wait(120) is None:
        stage.problems.append("a dry run did not end")
    changed = judge_same_tree(before, tree(stage.project.results))
    if alone and not changed.right:
        stage.problems.append(f"a dry run: {changed.text}")


# -- configurations ---------------------------------------------------------------------------------------------------

_DEEP = b"a: " + b"[" * 5000 + b"]" * 5000 + b"\n"
BAD_CONFIGS: Mapping[str, bytes | None] = {
    "missing": None,
    "not UTF-8": b"matrix: \xff\xfe\n",
    "self-referring": b"matrix: &a {sizes: [4], forms: *a}\n",
    "deeply nested": _DEEP,
    "a number of 5,000 digits": b"matrix: {windows: " + b"9" * 5000 + b"}\n",
    "a foreign tag": b"matrix: !!python/object/apply:os.system ['true']\n",
    "an unknown key": b"matrixx: {windows: 2}\n",
    "a word for a number": b"matrix: {windows: two}\n",
    "a list": b"- matrix\n",
    "an unclosed bracket": b"matrix: {windows: 2\n",
    "two documents": b"matrix: {windows: 2}\n---\nmatrix: {windows: 3}\n",
    "not a number": b"verdict: {drift_pct: .nan}\n",
}


def refused_config(name: str) -> Deed:
    """Run with a configuration that cannot be read: it is refused in a few words and nothing is changed."""

    def deed(stage: Stage) -> None:
        project, content = stage.project, BAD_CONFIGS[name]
        if content is not None:
            (project.folder / "bad.yaml").write_bytes(content)
        before = tree(project.results)
        words = ("-m", "snakemake", "--cores", "1", "matrix_report", "--configfile", "bad.yaml")
        run = project.command(*words, env=stage.env)
        code, text = run.wait(_REFUSED_S), run.text()
        lines = [line for line in text.splitlines() if line.strip()]
        if code in (0, None) or len(lines) > _REFUSED_LINES or "Traceback" in text:
            stage.problems.append(f"a configuration that is {name} ended with {code} and {len(lines)} lines")
        changed = judge_same_tree(before, tree(project.results))
        if not changed.right:
            stage.problems.append(f"a configuration that is {name}: {changed.text}")

    return deed
