"""What draws start from and are held against: states of an undisturbed run, and every figure it ends with."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.faults.catalogue import CAPTURES
from campaigns.faults.draws.figures import Figures, differences, figures_of
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
    """Folders of an undisturbed run by how far it has come, and what it ends with.

    ``same`` is the run's end; ``other`` that of a run whose first card group is slow, made when a draw asks for it.
    """

    folder: Path
    same: Reference
    _making: threading.Lock = field(default_factory=threading.Lock)

    @property
    def other(self) -> Reference:
        """What a run ends with that has to take the other quad. Raises ``RuntimeError`` when it fails."""
        with self._making:
            return _reference(self.folder / "other-group", _FIRST_QUAD_SLOW)

    def known(self, summary: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
        """The undisturbed reports of the card groups that a report tells of."""
        contracts = {verdict["contract"] for verdict in (summary or {}).get("verdicts", ())}
        return [self.same.summary, *([self.other.summary] if contracts - {self.same.contract} else [])]

    def copied(self, start: str, folder: Path) -> Project:
        """A project in ``folder`` that has come so far."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "states" / start.replace(" ", "-"), folder, symlinks=True)
        for output in folder.glob("run-*.txt"):
            output.unlink()
        return Project(folder.resolve())


def prepare_ground(folder: Path) -> Ground:
    """Run undisturbed, whole and beside it state by state; or take what ``folder`` holds of that.

    Raises ``RuntimeError`` when a run fails, or when the run that was halted at every state ends with other figures
    than the one that was not: then no draw can be judged.
    """
    finished = folder / "states" / "finished"
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(_reference, folder / "same", {})
        halted = pool.submit(_make_states, folder) if not finished.is_dir() else None
        ground = Ground(folder, whole.result())
        if halted:
            halted.result()
    if unlike := differences(figures_of(finished / "results"), ground.same.figures):
        raise RuntimeError(f"two undisturbed runs differ: {'; '.join(unlike[:5])}")
    return ground


def _reference(folder: Path, host: Mapping[str, Any]) -> Reference:
    if not (folder / "results" / _SUMMARY).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        project = make_project(folder)
        project.configure(CONFIG)
        project.set_host(values=host)
        _finished(project, "matrix_report")
    summary = json.loads((folder / "results" / _SUMMARY).read_text(encoding="utf-8"))
    return Reference(summary["verdicts"][0]["contract"], figures_of(folder / "results"), summary)


def _make_states(folder: Path) -> None:
    """Run one project target by target and keep a copy of it at each state."""
    working, states = folder / "working", folder / "states"
    for path in (working, states):
        shutil.rmtree(path, ignore_errors=True)
    project = make_project(working)
    project.configure(CONFIG)

    targets: Mapping[str, Sequence[str]] = {
        "new": (),
        "smoked": ("smoke",),
        "half": ("tp1-usp4/w1", "tp2-usp2/w1"),
        "one left": ("tp2-usp2/w2",),
        "measured": ("matrix",),
        "judged": ("verdict",),
        "finished": ("matrix_report",),
    }
    for state, wanted in targets.items():
        contract = next(iter(sorted(project.results.glob("c4-*"))), project.results)
        if wanted:
            _finished(
                project, *(f"results/{contract.name}/{one}/session.json" if "/w" in one else one for one in wanted)
            )
        shutil.copytree(working, states / state.replace(" ", "-"), symlinks=True)


def _finished(project: Project, *targets: str) -> None:
    run = project.start(*targets)
    if run.wait() != 0:
        raise RuntimeError(f"an undisturbed run failed: {run.output}")
