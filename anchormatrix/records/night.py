"""Nights: their names, their deadline, and what a night amounts to for a scheduler. Pure values, no I/O.

A night runs from noon to noon, local time, and is named by the date of its evening: a sweep begun at 23:00 on the 30th
and one begun at 01:00 on the 1st belong to the same night, ``2026-11-30``.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from statistics import median

from anchormatrix.errors import ConfigError, NightError
from anchormatrix.records.base import FileRecord, Record
from anchormatrix.records.session import SessionStatus

AUTO = "auto"
NOT_STARTED = "not_started"
_HALF_DAY = timedelta(hours=12)
_GAPS = 14
_TELLING = (SessionStatus.MEASURED, SessionStatus.SKIPPED, SessionStatus.DID_NOT_RUN)


class NightOutcome(enum.Enum):
    """What a scheduler is told. The value is the word; :attr:`exit_code` the number."""

    FINE = "fine"
    REGRESSION = "regression"
    COULD_NOT_MEASURE = "could not measure"

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a regression, 3 something could not be measured (2 is a wrong call, as for every command)."""
        return {"fine": 0, "regression": 1}.get(self.value, 3)


@dataclass(frozen=True)
class Place:
    """Where a session stands in the matrix."""

    contract: str
    form: str
    window: int

    def __str__(self) -> str:
        return f"{self.form} window {self.window} of {self.contract}"


@dataclass(frozen=True)
class Tonight:
    """What became of one session that a night should have measured; ``before``: earlier nights have a number of it."""

    place: Place
    status: str
    reason: str
    before: bool

    @property
    def lost(self) -> bool:
        """A form that used to run and did not run through tonight: a regression, not a missing measurement."""
        return self.status == SessionStatus.DID_NOT_RUN and self.before

    @property
    def unmeasured(self) -> bool:
        """No number tonight, for a reason that says nothing about the form; a form that never ran is not news."""
        return self.status not in _TELLING and (self.before or self.status in (NOT_STARTED, ""))


class ChangedCell(Record, frozen=True):
    """A cell that became slower or faster beyond noise by ``shift_pct``, and the circumstances that changed with it."""

    contract: str
    form: str
    tier: str
    change: str
    new: bool
    shift_pct: float
    circumstances: tuple[str, ...]


class NightSession(Record, frozen=True):
    """What became of one session of the night."""

    contract: str
    form: str
    window: int
    status: str
    reason: str


class NightCell(Record, frozen=True):
    """One cell tonight and the night before, in seconds per step; ``None`` where it was not measured or not judged."""

    contract: str
    form: str
    tier: str
    step_s: float | None
    dispersion_pct: float | None
    last_step_s: float | None
    trend: str | None
    shift_pct: float | None


class NightSummary(FileRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A night, as ``nightly/summary.json`` holds it; the hook is told the same without its ``cells``.

    ``history`` is what is to be said of the history that the night was compared by; mostly nothing.
    """

    night: str
    outcome: NightOutcome
    exit_code: int
    problem: str
    changed: tuple[ChangedCell, ...]
    sessions: tuple[NightSession, ...]
    missed_nights: tuple[str, ...]
    history: tuple[str, ...] = ()
    cells: tuple[NightCell, ...] | None = None


def night_of(moment: datetime) -> str:
    """The night that a moment of local time belongs to."""
    return (moment - _HALF_DAY).date().isoformat()


def resolve_night(given: str, now: datetime) -> str:
    """A night as configured: a date, or ``auto`` for the one that ``now`` belongs to. Raises :class:`ConfigError`."""
    if given == AUTO:
        return night_of(now)
    try:
        return date.fromisoformat(given).isoformat()
    except ValueError:
        raise ConfigError(
            f"{given!r} is not a night", where="night", expected="auto, or the date of its evening as 2026-11-30"
        ) from None


def deadline_of(night: str, clock: str) -> datetime:
    """The first ``HH:MM`` of local time after the noon at which a night begins."""
    noon = datetime.combine(date.fromisoformat(night), time(12))
    hour, minute = (int(part) for part in clock.split(":"))
    at = noon.replace(hour=hour, minute=minute)
    return at if at > noon else at + timedelta(days=1)


def require_time(what: object, deadline: datetime, needs_s: float | None, now: datetime) -> None:
    """Check that ``what``, begun now, ends before the deadline; times are local.

    ``needs_s`` is what the like took, in seconds; without any history only the deadline itself counts.
    Raises :class:`NightError` when it cannot.
    """
    left_s = (deadline.astimezone() - now.astimezone()).total_seconds()  # a night may hold a change of the clocks
    if left_s > (needs_s or 0.0):
        return
    needed = f"needs about {duration_words(needs_s)}, " if needs_s else ""
    left = f"{duration_words(left_s)} left" if left_s > 0 else f"{deadline:%Y-%m-%d %H:%M} has passed"
    raise NightError(f"deadline {deadline:%H:%M}: {needed}{left}", where=f"not started: {what}")


def outcome_of(sessions: Sequence[Tonight], regressions: int, problem: str = "") -> NightOutcome:
    """A night's outcome. A regression outweighs what could not be measured: it is the one that needs somebody."""
    if regressions or any(session.lost for session in sessions):
        return NightOutcome.REGRESSION
    if problem or not sessions or any(session.unmeasured for session in sessions):
        return NightOutcome.COULD_NOT_MEASURE
    return NightOutcome.FINE


def missed_nights(nights: Sequence[str], until: str) -> list[str]:
    """Nights without a sweep between those that had one and ``until``, by the usual interval of the last ones.

    Nothing is missed while no regular interval is known: fewer than three nights, or intervals that differ mostly.
    """
    days = sorted({date.fromisoformat(night) for night in (*nights, until)})[-_GAPS:]
    gaps = [(later - earlier).days for earlier, later in itertools.pairwise(days)]
    if len(gaps) < 2:
        return []
    usual = int(median(gaps[:-1]))
    if usual < 1 or sum(gap % usual == 0 for gap in gaps) < 0.8 * len(gaps):
        return []
    missed = []
    for earlier, later in itertools.pairwise(days):
        step = earlier + timedelta(days=usual)
        while step < later:
            missed.append(step.isoformat())
            step += timedelta(days=usual)
    return missed


def duration_words(seconds: float | None) -> str:
    """A duration as ``h:mm``, or as seconds below two minutes; ``unknown`` without one."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h"
