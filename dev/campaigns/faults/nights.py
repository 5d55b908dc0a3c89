"""A night of many sessions, killed at random moments and run again until it is done, as often as asked."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.faults.project import Project, make_project

_FORMS = {
    2: ["tp1-usp2", "tp2-usp1"],
    4: ["tp1-usp4", "tp2-usp2", "tp4-usp1", "tp1-usp2-ring2"],
    8: ["tp1-usp8", "tp2-usp4", "tp4-usp2", "tp8-usp1"],
}
_NIGHT_S = 3600.0
_KILLS_A_NIGHT = 8  # the moments are drawn from this part of a night's length, so that nights get on between kills


@dataclass(frozen=True)
class Nights:
    """What became of all nights; ``text`` says it in a sentence or two."""

    right: bool
    text: str


def kill_and_resume(folder: Path, *, sessions: int, kills: int, seed: int, say: Callable[[str], None]) -> Nights:
    """Run nights of at least ``sessions`` sessions until ``kills`` kills are spent; compare every final summary.

    Every run is killed with SIGKILL at a random moment, by turns Snakemake alone and Snakemake with the command it
    runs; the next run follows at once. When the kills are spent, the last night is let to its end.
    """
    windows = -(-sessions // sum(len(forms) for forms in _FORMS.values()))
    begin = time.monotonic()
    wanted = _finished(_night_project(folder / "undisturbed-night", windows))
    took_s = time.monotonic() - begin
    say(f"an undisturbed night of {sessions} sessions takes {took_s:.0f} s")
    moments, spent, nights = random.Random(seed), 0, 0
    problems: list[str] = []
    while spent < kills and not problems:
        project = _night_project(folder / f"night-{nights + 1}", windows)
        done = False
        while not done and not problems:
            limit_s = moments.uniform(0.0, took_s / _KILLS_A_NIGHT) if spent < kills else _NIGHT_S
            killed, problem = _run_for(project, limit_s, whole_group=bool(spent % 2))
            spent, done = spent + killed, not killed
            problems += [problem] if problem else []
            say(f"night {nights + 1}, kill {spent}: {len(project.sessions())} sessions finished")
        nights += 1
        if not problems and project.summary() != wanted:
            problems.append(f"night {nights}: another summary, see {project.folder}")
        if left := project.left_running():
            problems.append(f"night {nights}: left running: {left}")
    text = (
        f"{spent} kills over {nights} nights of {sessions} sessions (seed {seed}): "
        + ("; ".join(problems) or "every final summary equals the undisturbed night's, and nothing was left running")
        + "."
    )
    return Nights(not problems, text)


def _night_project(folder: Path, windows: int) -> Project:
    shutil.rmtree(folder, ignore_errors=True)
    project = make_project(folder)
    project.set_host(values={"serving": {"time_scale": 0.0001}})
    project.configure({"matrix": {"sizes": list(_FORMS), "forms": _FORMS, "windows": windows}})
    return project


def _finished(project: Project) -> dict[str, Any]:
    run = project.start("matrix_report")
    code, summary = run.wait(_NIGHT_S), project.summary()
    if code != 0 or summary is None:
        raise RuntimeError(f"the undisturbed night ended with {code}: {run.output}")
    return summary


def _run_for(project: Project, seconds: float, *, whole_group: bool) -> tuple[int, str]:
    """Run, kill after ``seconds``: whether it was killed (1 or 0), and what is wrong if it ended badly by itself."""
    run = project.start("matrix_report")
    try:
        code = run.process.wait(seconds)
    except subprocess.TimeoutExpired:
        if whole_group:
            os.killpg(run.pid, signal.SIGKILL)
        else:
            run.process.kill()
        run.process.wait()
        return 1, "" if seconds < _NIGHT_S else "did not end"
    return 0, f"a run ended with {code}, see {run.output}" if code else ""
