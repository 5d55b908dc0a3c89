"""The expected time on the cards of what a run has to measure, and what that expectation rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.history.progress import Durations
from anchormatrix.planning.outlook.reckoning import Reckoning, reckon, session_s, smoke_s, sweep_s
from anchormatrix.records.night import Place, duration_words
from anchormatrix.records.settings.whole import Settings

_HISTORY, _SMOKE = "history", "the smoke's step"


@dataclass(frozen=True)
class Work:
    """What a run has to measure of one size, in the order it runs.

    Under the adaptive design ``least`` of the ``sessions`` are started at least, else all. ``step_s`` is the step of
    the group's smoke, None where there is none.
    """

    size: int
    sessions: tuple[Place, ...]
    least: int
    smoke: bool
    sweep: bool
    step_s: float | None = None


@dataclass(frozen=True)
class Expected:
    """Sessions, smokes and sweeps, and the seconds that they take at least and at most."""

    least: int
    most: int
    smokes: int
    sweeps: int
    least_s: float
    most_s: float
    basis: str

    @property
    def words(self) -> str:
        """One line for the end of a dry run."""
        if not self.most + self.smokes + self.sweeps:
            return "Nothing is to be measured."
        sessions = f"{self.most}" if self.least == self.most else f"{self.least} to {self.most}"
        counted = [
            text
            for count, text in (
                (self.most, f"{sessions} {_plural(self.most, 'session')}"),
                (self.smokes, f"{self.smokes} {_plural(self.smokes, 'smoke')}"),
                (self.sweeps, f"{self.sweeps} {_plural(self.sweeps, 'sweep')} of bandwidth"),
            )
            if count
        ]
        times = dict.fromkeys(duration_words(seconds) for seconds in (self.least_s, self.most_s))
        return f"To measure: {', '.join(counted)}. Expected on the cards: {' to '.join(times)}, {self.basis}."


def expect(works: Sequence[Work], settings: Settings, durations: Durations) -> Expected:
    """What some work is expected to take: each session as history tells, else by the smoke's step, else reckoned."""
    reckoned = reckon(settings)
    sources: dict[str, int] = {}
    least_s = most_s = 0.0
    for work in works:
        step_s = work.step_s or reckoned.step_s(work.size)
        taken = []
        for place in work.sessions:
            known = durations.of(place)
            source = _HISTORY if known is not None else _SMOKE if work.step_s else ""
            sources[source] = sources.get(source, 0) + 1
            taken.append(session_s(settings, step_s, reckoned) if known is None else known)
        other = work.smoke * smoke_s(settings, step_s, reckoned) + work.sweep * sweep_s(reckoned)
        least_s += other + sum(taken[: work.least])
        most_s += other + sum(taken)
    starts = sum(len(work.sessions) + work.smoke for work in works)
    return Expected(
        least=sum(min(work.least, len(work.sessions)) for work in works),
        most=sum(len(work.sessions) for work in works),
        smokes=sum(work.smoke for work in works),
        sweeps=sum(work.sweep for work in works),
        least_s=least_s,
        most_s=most_s,
        basis=_basis(sources, starts, reckoned),
    )


def _basis(sources: dict[str, int], starts: int, reckoned: Reckoning) -> str:
    """From what: the source of the sessions' times, or the number of loads and the figures they are reckoned from."""
    told = [name for name in (_HISTORY, _SMOKE) if sources.get(name)]
    unknown = sources.get("", 0)
    if told and not unknown:
        return f"by {' and '.join(told)}"
    rest = f"{unknown} of them reckoned" if told else "nothing of it timed yet: reckoned"
    by = f"by {' and '.join(told)}, " if told else ""
    return f"{by}{rest} from {starts} {_plural(starts, 'load')} ({reckoned.words})"


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"
