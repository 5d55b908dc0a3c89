"""The stage of a fault: the project and run that are struck, and the moment at which they are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.faults.project import Project, Run

Deed = Callable[["Stage"], None]
_LOOK_S = 0.004


@dataclass
class Stage:
    """One fault under way: the project, the run that is struck, and what deeds leave for the judgement.

    ``lifting`` ends the fault, ``closing`` the whole stage. ``spoiled`` are results that the deed itself damaged (paths
    below results/), ``problems`` what was wrong with the deed, ``clones`` other folders with a run of their own,
    ``notes`` what the deed chose at its moment.
    """

    project: Project
    lifting: contextlib.ExitStack
    closing: contextlib.ExitStack
    env: dict[str, str] = field(default_factory=dict)
    run: Run | None = None
    killed: bool = False
    spoiled: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    clones: list[tuple[Project, Run]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Moment:
    """When a file matching ``pattern`` (below the project's folder) exists and holds ``text`` at least ``times``."""

    pattern: str
    text: str = ""
    times: int = 1

    def reached(self, folder: Path) -> bool:
        """Whether it is that moment or later."""
        for path in folder.glob(self.pattern):
            with contextlib.suppress(OSError):
                if not self.text or path.read_text(encoding="utf-8", errors="replace").count(self.text) >= self.times:
                    return True
        return False

    def await_in(self, stage: Stage) -> bool:
        """Wait for it; ``False`` when the run ends without it."""
        assert stage.run is not None
        while not self.reached(stage.project.folder):
            if stage.run.process.poll() is not None:
                return self.reached(stage.project.folder)
            time.sleep(_LOOK_S)
        return True


def job_started(rule: str) -> Moment:
    """The command of a job was started: its log exists, its result does not yet."""
    return Moment(f"results/logs/{rule}.log")


def in_request(number: int, session: str = "*") -> Moment:
    """A server works on its n-th request; ``session`` is a pattern such as ``*-tp1-usp4-w1-*``."""
    return Moment(f"host/scratch/{session}/server.log", "Video sampling params", number)
