"""What draws start from and are held against: states of an undisturbed run, and every figure it ends with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.faults.catalogue import CAPTURES
from campaigns.faults.draws.figures import Figures, differences, figures_of
from campaigns.faults.draws.judges import OTHER, SAME
from campaigns.faults.project import Project, make_project

SECRET = "hf_uJ4kZ0yQ7mWn2cVx5tRb8sEd"
"""The value of a secret in the host's environment; nothing but the configuration may hold it."""
CONFIG: Mapping[str, Any] = {**CAPTURES, "host": {"env": {"HF_TOKEN": SECRET}}}
_FIRST_QUAD_SLOW = {"residue": {"cards": [0, 1, 2, 3]}}  # its smoke fails, so that the run goes on with the other
_SUMMARY = "matrix_report/summary.json"


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run on one card group ends with: its contract, every figure, and the report's numbers."""

    contract: str
    figures: Figures
    summary: Mapping[str, Any]


@dataclass(frozen=True)
class Ground:
    """Folders of an undisturbed run by how far it has come, and what it ends with, by card group."""

    folder: Path
    references: Mapping[str, Reference]

    def copied(self, start: str, folder: Path) -> Project:
        """A project in ``folder`` that has come so far."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "states" / start.replace(" ", "-"), folder, symlinks=True)
        for output in folder.glob("run-*.txt"):
            output.unlink()
        return Project(folder.resolve())


def prepare_ground(folder: Path) -> Ground:
    """Run undisturbed: whole, whole on the other quad, and state by state; or take what ``folder`` holds of that.

    Raises ``RuntimeError`` when a run fails, or when the run that was halted at every state ends with other figures
    than the one that was not: then no draw can be judged.
    """
    references = {name: _reference(folder / name.replace(" ", "-"), host) for name, host in _RUNS.items()}
    ground = Ground(folder, references)
    if not (folder / "states" / "finished").is_dir():
        _make_states(folder, references[SAME].contract)
    found = figures_of(folder / "states" / "finished" / "results")
    if unlike := differences(found, references[SAME].figures):
        raise RuntimeError(f"two undisturbed runs differ: {'; '.join(unlike[:5])}")
    return ground


_RUNS: Mapping[str, Mapping[str, Any]] = {SAME: {}, OTHER: _FIRST_QUAD_SLOW}


def _reference(folder: Path, host: Mapping[str, Any]) -> Reference:
    if not (folder / "results" / _SUMMARY).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        project = make_project(folder)
        project.configure(CONFIG)
        project.set_host(values=host)
        _finished(project, "matrix_report")
    summary = json.loads((folder / "results" / _SUMMARY).read_text(encoding="utf-8"))
    return Reference(summary["verdicts"][0]["contract"], figures_of(folder / "results"), summary)


def _make_states(folder: Path, contract: str) -> None:
    """Run one project target by target and keep a copy of it at each state."""
    working, states = folder / "working", folder / "states"
    for path in (working, states):
        shutil.rmtree(path, ignore_errors=True)
    project = make_project(working)
    project.configure(CONFIG)

    def session(form: str, window: int) -> str:
        return f"results/{contract}/{form}/w{window}/session.json"

    targets: Mapping[str, Sequence[str]] = {
        "new": (),
        "smoked": ("smoke",),
        "half": (session("tp1-usp4", 1), session("tp2-usp2", 1)),
        "one left": (session("tp2-usp2", 2),),
        "measured": ("matrix",),
        "judged": ("verdict",),
        "finished": ("matrix_report",),
    }
    for state, wanted in targets.items():
        if wanted:
            _finished(project, *wanted)
        shutil.copytree(working, states / state.replace(" ", "-"), symlinks=True)


def _finished(project: Project, *targets: str) -> None:
    run = project.start(*targets)
    if run.wait() != 0:
        raise RuntimeError(f"an undisturbed run failed: {run.output}")
