"""The deadline of a nightly sweep: which session may still start, by what such sessions took; recorded when not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from anchormatrix.errors import NightError
from anchormatrix.history.keeping import Keeper
from anchormatrix.history.progress import read_durations
from anchormatrix.history.record import record_not_started
from anchormatrix.records.night import Place, require_time


def check_deadline(
    file: Path | str, results: Path, place: Place, night: str, deadline: datetime, now: datetime
) -> None:
    """Raise :class:`NightError`, and record why, when a session begun now would not end before the deadline."""
    try:
        require_time(place, deadline, read_durations(file, [place.contract]).of(place), now)
    except NightError as error:
        what = error.what
        Keeper(Path(file), results).on(lambda history: record_not_started(history, place, night, what, now))
        raise
