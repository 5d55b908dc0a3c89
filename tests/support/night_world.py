"""A results folder and a workflow that does what a test wants, swept as a night."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from night_results import place, write_session
from report_results import settings

from anchormatrix.errors import HostError
from anchormatrix.history.review import Review
from anchormatrix.nightly.sweep import Sweep, run_night
from anchormatrix.records.night import NightOutcome, Place
from anchormatrix.records.settings.policies import HistorySettings, NightlySettings

NIGHT = "2026-11-30"
PLACES = (place(), place("tp2-usp1"))


@dataclass
class World:
    """A results folder and a workflow that does what a test wants, call by call."""

    results: Path
    steps: list[Callable[[], int]]
    hook: tuple[str, ...] = ()
    retries: int = 1
    night: str = NIGHT
    now: datetime = datetime(2026, 11, 30, 23)
    calls: list[Sequence[str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    published: list[Review] = field(default_factory=list)
    host_lost: bool = False

    @property
    def history(self) -> Path:
        return self.results / "history.sqlite"

    def run(self) -> tuple[NightOutcome, Review | None]:
        configured = replace(
            settings(),
            history=HistorySettings(file=str(self.history), keep_nights=400),
            nightly=NightlySettings(deadline="06:00", retries=self.retries, hook=self.hook),
        )
        return run_night(
            Sweep(
                configured, self.results, self.night, self._workflow, self._planned,
                lambda review, _: self.published.append(review), self.said.append, lambda: self.now,
            )
        )  # fmt: skip

    def _workflow(self, again: Sequence[str]) -> int:
        self.calls.append(again)
        return self.steps[len(self.calls) - 1]()

    def _planned(self) -> Sequence[Place]:
        if self.host_lost:
            raise HostError("does not answer", where="here")
        return PLACES

    def measure(self, *forms: str, code: int = 0, **other: Any) -> Callable[[], int]:
        """A call of the workflow that measures some forms and ends with a code."""

        def step() -> int:
            for form in forms:
                write_session(self.results, self.night, form=form, **other)
            return code

        return step
