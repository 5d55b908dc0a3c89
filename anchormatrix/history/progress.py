"""The progress of a run: which session this is, what comes next, and the time left judged from history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from anchormatrix.errors import InputError
from anchormatrix.history.query import durations, median_step
from anchormatrix.history.store import read_history
from anchormatrix.records.night import Place, duration_words


@dataclass(frozen=True)
class Durations:
    """What sessions took, by place, in seconds."""

    taken_s: Mapping[Place, float]

    def of(self, place: Place) -> float | None:
        """What a session will take: as it took before, else as its form, else as its card count; else unknown."""
        if place in self.taken_s:
            return self.taken_s[place]
        same_form = [s for p, s in self.taken_s.items() if (p.contract, p.form) == (place.contract, place.form)]
        same_contract = [s for p, s in self.taken_s.items() if p.contract == place.contract]
        alike = same_form or same_contract
        return median(alike) if alike else None


def read_durations(file: Path | str, contracts: Sequence[str]) -> Durations:
    """The durations recorded for some contracts; none when the history is missing or cannot be read.

    An estimate is a comfort: what is wrong with a history is told where it is written.
    """
    try:
        with read_history(file) as history:
            return Durations(durations(history, contracts) if history else {})
    except InputError:
        return Durations({})


def recorded_steps(file: Path | str) -> Callable[[str, str], float | None]:
    """How fast a form's few-step tier was under a contract, by history: what a smoke's expectation may rest on."""

    def step_s(contract: str, form: str) -> float | None:
        try:
            with read_history(file) as history:
                return median_step(history, contract, form) if history else None
        except InputError:
            return None  # what is wrong with a history is told where it is written

    return step_s


@dataclass(frozen=True)
class Progress:
    """The sessions that a run has to measure, in the order they will run.

    Formatting it with ``contract form window`` gives the words for that session: a rule's message can hold
    ``{PROGRESS:{wildcards.contract} {wildcards.form} {wildcards.window}}``.
    """

    pending: tuple[Place, ...]
    durations: Durations

    def __format__(self, spec: str) -> str:
        contract, form, window = spec.split()
        return self.at(Place(contract, form, int(window)))

    def at(self, place: Place) -> str:
        """Which session of how many this is, the time left with it, and what comes next."""
        if place not in self.pending:
            return "beyond the sessions planned when the run began"
        index = self.pending.index(place)
        words = [f"session {index + 1} of {len(self.pending)}", self._left(index)]
        if index + 1 < len(self.pending):
            following = self.pending[index + 1]
            elsewhere = f" of {following.contract}" if following.contract != place.contract else ""
            words.append(f"next {following.form} window {following.window}{elsewhere}")
        return ", ".join(words)

    def _left(self, index: int) -> str:
        estimates = [self.durations.of(place) for place in self.pending[index:]]
        known = [seconds for seconds in estimates if seconds is not None]
        if not known:
            return "time left unknown before the first history"
        unknown = len(estimates) - len(known)
        more = f" and {unknown} not known" if unknown else ""
        return f"about {duration_words(sum(known))}{more} left"
