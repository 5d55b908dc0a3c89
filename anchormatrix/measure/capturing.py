"""Where a session's capture goes, and what is said of one that failed, is empty or fell on the ramp."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Host
from anchormatrix.records.settings import Settings
from anchormatrix.store.files import write_json

FOLDER = "capture"
_KERNELS = "kernel_details.csv"


@dataclass(frozen=True)
class Capture:
    """A session's capture. ``status``: ``captured``, ``failed``, ``empty``, ``on_ramp`` or ``off``.

    ``request`` is the number, from 1, of the request it lies in; ``why`` says why the server is steady there,
    ``reason`` what is wrong.
    """

    status: str
    request: int | None = None
    why: str = ""
    reason: str = ""
    directory: str | None = None
    files: int = 0
    size_mb: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The capture as ``session.json`` holds it."""
        return asdict(self)


def fetch_capture(capture: Capture, host: Host, directory: str, folder: Path, settings: Settings) -> Capture:
    """Fetch the profiler's files of all ranks to ``<folder>/capture`` and write ``capture.json`` beside them.

    An earlier capture of the form is replaced; with ``capture.keep: all`` it is first moved to
    ``capture-<time it was made>``. When nothing usable comes back, the earlier one is left alone and not used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fetched = Path(tempfile.mkdtemp(prefix=".capture.", dir=folder))
    try:
        try:
            host.fetch(directory, fetched / FOLDER)
        except HostError as error:
            return replace(capture, status="failed", reason=f"cannot be fetched: {error}")
        files = [path for path in (fetched / FOLDER).rglob("*") if path.is_file()]
        sizes = [path.stat().st_size for path in files]
        if not any(sizes):
            return replace(capture, status="empty", reason="the profiler wrote no file")
        tables = [path for path in files if path.name == _KERNELS]
        if tables and not any(_has_rows(path) for path in tables):
            return replace(capture, status="empty", reason=f"the profiler's {_KERNELS} have no rows")
        done = replace(capture, directory=str(folder / FOLDER), files=len(sizes), size_mb=round(sum(sizes) / 1e6, 3))
        made = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        write_json(fetched / FOLDER / "capture.json", {**done.as_dict(), "made": made})
        _replace(fetched / FOLDER, folder / FOLDER, keep=settings.capture.keep == "all")
        return done
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def _has_rows(table: Path) -> bool:
    """Whether a table holds anything below its header."""
    with table.open("rb") as stream:
        stream.readline()
        return bool(stream.readline().strip())


def _replace(new: Path, place: Path, *, keep: bool) -> None:
    if place.exists():
        stamp = datetime.fromtimestamp(place.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%S")
        old = place.with_name(f"{FOLDER}-{stamp}" if keep else f".{FOLDER}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(place, old)
        if not keep:
            shutil.rmtree(old, ignore_errors=True)
    os.replace(new, place)
