"""What the repeats of a contract say about its fastest form: every other form against it, with an interval."""

from __future__ import annotations

import enum

from anchormatrix.records.base import Record


class Standing(enum.StrEnum):
    """Where a form stands against the leader.

    ``behind`` is slower beyond doubt. ``settled`` may be the faster one, but by no more than the indifference zone.
    ``open`` could still be faster by more than that.
    """

    BEHIND = "behind"
    SETTLED = "settled"
    OPEN = "open"


class StartNoise(Record, frozen=True, kw_only=True):
    """How far server starts of one form differ: the standard deviation of a start's step, in percent.

    ``dof`` are the degrees of freedom it rests on; ``from_history`` how many of them earlier starts on this host gave.
    """

    sd_pct: float
    dof: float
    from_history: float = 0.0


class Rival(Record, frozen=True, kw_only=True):
    """A form against the leader, in percent of the leader's step: positive when it is slower.

    ``low_pct`` and ``high_pct`` bound the true difference; ``starts`` is the number of windows that both were measured
    in. They are None while the noise between starts is unknown.
    """

    form: str
    standing: Standing
    behind_pct: float
    low_pct: float | None
    high_pct: float | None
    starts: int


class Selection(Record, frozen=True, kw_only=True):
    """The fastest form of a contract at the anchor, as far as its server starts tell.

    ``decided``: no other form is faster than the ``leader`` by more than ``zone_pct``, with a chance of error of
    ``level`` in each comparison. ``rivals`` are all other forms with starts, nearest first; ``unheard`` are forms that
    ran without a start that may be compared: while there is one, nothing is decided. ``hopeless`` says why more starts
    would hardly decide; ``starts`` counts server starts by form.
    """

    leader: str | None
    decided: bool
    rivals: tuple[Rival, ...]
    unheard: tuple[str, ...] = ()
    noise: StartNoise | None
    zone_pct: float
    level: float
    starts: dict[str, int]
    hopeless: str = ""

    @property
    def ranked(self) -> tuple[str, ...]:
        """The forms that are ranked, the leader first."""
        return (*([self.leader] if self.leader else ()), *(item.form for item in self.rivals))

    @property
    def ties(self) -> tuple[Rival, ...]:
        """Rivals neither faster nor slower than the leader by more than the indifference zone, beyond doubt."""
        return tuple(item for item in self.rivals if item.high_pct is not None and item.high_pct <= self.zone_pct)

    @property
    def tied(self) -> tuple[str, ...]:
        """The forms of :attr:`ties`."""
        return tuple(item.form for item in self.ties)
