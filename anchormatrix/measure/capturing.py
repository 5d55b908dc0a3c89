"""The capture of a session: where it goes, and what is said of one that failed, is empty or fell on the ramp."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import asdict, replace

from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Host
from anchormatrix.records.session import Capture, CaptureFile, CaptureStatus
from anchormatrix.records.settings.values import KeepCaptures
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import write_record

FOLDER = "capture"
_KERNELS = "kernel_details.csv"


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
            return replace(capture, status=CaptureStatus.FAILED, reason=f"cannot be fetched: {error}")
        files = [path for path in (fetched / FOLDER).rglob("*") if path.is_file()]
        sizes = [path.stat().st_size for path in files]
        if not any(sizes):
            return replace(capture, status=CaptureStatus.EMPTY, reason="the profiler wrote no file")
        tables = [path for path in files if path.name == _KERNELS]
        if tables and not any(_has_rows(path) for path in tables):
            return replace(capture, status=CaptureStatus.EMPTY, reason=f"the profiler's {_KERNELS} have no rows")
        done = replace(capture, directory=str(folder / FOLDER), files=len(sizes), size_mb=round(sum(sizes) / 1e6, 3))
        made = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        write_record(fetched / FOLDER / "capture.json", CaptureFile(**asdict(done), made=made))
        _replace(fetched / FOLDER, folder / FOLDER, keep=settings.capture.keep == KeepCaptures.ALL)
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
