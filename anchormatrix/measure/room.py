"""Room on the disks that a session writes to, here and on the host: before it starts, and whether it ran out.

A server that cannot write its log goes on and logs less, a profiler writes half a file: neither says anything of the
form. So a lack of space is an error that leaves no result, and the next run measures again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from anchormatrix.errors import InputError, SpaceError
from anchormatrix.measure.causes import catalogue, known_failure
from anchormatrix.measure.rig import Rig
from anchormatrix.records.session import CaptureFile
from anchormatrix.store.codec import read_record
from anchormatrix.store.seals import files_below

_FULL = "disk_full"
_FLOOR_MB = 1.0  # a disk with less than this is full: some writer's last piece did not fit
_SPARE = 2.0  # files lie twice for a while, fetched and packed; a slow captured step is captured again


def require_room(rig: Rig, scratch: str, results: Path | None = None, *, captures: bool = False) -> None:
    """Say how much room there is for a session, on its host's scratch folder and below ``results``.

    What it needs is judged from the largest session and capture that ``results`` holds, and is ``host.min_free_mb`` at
    least. Raises :class:`SpaceError` that says how much there is, how much is needed, and where.
    """
    needed = max(float(rig.settings.host.min_free_mb), _SPARE * _largest_mb(results, captures=captures))
    places = [(f"{rig.host.alias}:{scratch}", _free_there(rig, scratch))]
    places += [(str(results), _free_here(results))] if results else []
    rig.say(f"room: {', '.join(f'{_mb(free)} at {where}' for where, free in places)}; needed: {_mb(needed)}")
    for where, free in places:
        if free is not None and free < needed:
            raise SpaceError(
                f"{_mb(free)} free, and a session needs {_mb(needed)}",
                where=where,
                todo="make room there and run again: nothing was started; host.min_free_mb is the least",
            )


def require_written(rig: Rig, scratch: str, texts: Iterable[str]) -> None:
    """Raise :class:`SpaceError` when the host's disk is full after a session, or one of its texts tells of it.

    ``texts`` are the server's log and what was said of the capture.
    """
    require_not_full(rig.host.alias, texts)
    free = _free_there(rig, scratch)
    if free is not None and free < _FLOOR_MB:
        raise SpaceError(
            f"the disk is full ({free * 1000:.0f} kB free): log and capture may not be whole",
            where=f"{rig.host.alias}:{scratch}",
            todo="make room, or correct host.scratch_dir; the next run measures it again",
        )


def require_not_full(where: str, texts: Iterable[str]) -> None:
    """Raise :class:`SpaceError` when what was said on a host tells of a full disk there."""
    for text in texts:
        failure = known_failure(text)
        if failure and failure.id == _FULL:
            raise SpaceError(
                f"a disk ran full while it was measured: {failure.line}",
                where=where,
                todo=f"{catalogue()[_FULL].cure}; the next run measures it again",
            )


def _free_here(folder: Path) -> float:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free / 1e6


def _free_there(rig: Rig, folder: str) -> float | None:
    """Free MB below a folder of the host; None where ``df`` does not tell."""
    done = rig.host.run(("df", "-Pk", folder), timeout_s=rig.settings.host.command_timeout_s, check=False)
    try:
        return int(done.stdout.splitlines()[1].split()[3]) * 1024 / 1e6
    except (IndexError, ValueError):
        return None


def _largest_mb(results: Path | None, *, captures: bool) -> float:
    """The largest session of a results folder, with the largest capture as it was on the host when one is made."""
    if results is None:
        return 0.0
    windows = (sum(path.stat().st_size for path in files_below(folder)) for folder in results.glob("c*-*/*/w*"))
    raw = (_captured_mb(path) for path in results.glob("c*-*/*/capture*/capture.json")) if captures else ()
    return max(windows, default=0) / 1e6 + max(raw, default=0.0)


def _captured_mb(path: Path) -> float:
    try:
        return read_record(path, CaptureFile).size_mb or 0.0
    except InputError:
        return 0.0


def _mb(value: float | None) -> str:
    return "an unknown amount" if value is None else f"{value:,.0f} MB"
