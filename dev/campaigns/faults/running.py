"""One fault from beginning to end: the first run, the fault, the next run, and everything judged."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchormatrix.hosts.processes import entry
from campaigns.faults.catalogue import CAPTURES, MARKED, OTHER_GROUP, SAME, Fault
from campaigns.faults.judging import (
    Judgement,
    Undisturbed,
    judge_end,
    judge_kept,
    judge_numbers,
    judge_report,
    undisturbed_from,
)
from campaigns.faults.project import Project, make_project
from campaigns.faults.stage import Stage

COLUMNS = ("first run ended", "finished cells kept", "numbers", "nothing left", "foreign untouched", "next run")
_DECOY_S = "3600"  # bounded, in case the campaign itself is killed
_DECOYS = ("vllm serve Wan --omni", "python scripts/rules/measure_window.py", "VLLM::DiffusionWorker")


@dataclass(frozen=True)
class Outcome:
    """What became of one fault; ``skipped`` says why it could not be tried here."""

    fault: Fault
    judgements: Mapping[str, Judgement]
    skipped: str = ""

    @property
    def right(self) -> bool:
        """Whether everything held."""
        return all(judgement.right for judgement in self.judgements.values())


@dataclass(frozen=True)
class Ground:
    """What all faults are held against: a finished project to start from, and the undisturbed reports by name."""

    finished: Project
    references: Mapping[str, Undisturbed]


def prepare_ground(folder: Path, groups: Sequence[str] = (SAME, OTHER_GROUP)) -> Ground:
    """Run undisturbed on the quads named, or take what an earlier campaign left in ``folder``."""
    values_of: dict[str, Mapping[str, Any]] = {SAME: CAPTURES, OTHER_GROUP: {"groups": {"pinned": {4: [4, 5, 6, 7]}}}}
    projects = {}
    for name in groups:
        path = folder / name.replace(" ", "-")
        project = Project(path.resolve()) if path.is_dir() else make_project(path)
        project.configure(values_of[name])
        run = project.start("matrix_report")
        if run.wait() != 0:
            raise RuntimeError(f"the undisturbed run failed: {run.output}")
        projects[name] = project
    references = {name: undisturbed_from(project.summary() or {}) for name, project in projects.items()}
    return Ground(projects[SAME], references)


def run_fault(fault: Fault, folder: Path, ground: Ground) -> Outcome:
    """Try one fault in ``folder``, which is emptied first."""
    if reason := fault.impossible():
        return Outcome(fault, {}, reason)
    shutil.rmtree(folder, ignore_errors=True)
    with foreign_processes(folder.parent / "foreign") as alive, contextlib.ExitStack() as closing:
        project = _begin(fault, folder, ground)
        lifting = closing.enter_context(contextlib.ExitStack())
        stage = Stage(project, lifting, closing)
        for deed in fault.prepare:
            deed(stage)
        found = _first_run(fault, stage, ground)
        after_first, summaries = project.sessions(), [project.summary()]
        lifting.close()
        if not fault.lasts:
            project.set_host(values=_pace(fault))
        code = _again(stage)
        summaries.append(project.summary())
        if found["finished cells kept"].right:
            found["finished cells kept"] = judge_kept(after_first, project.sessions(), stage.spoiled)
        found["next run"] = judge_report(project, code, fault.then, ground.references)
        if fault.then == MARKED and found["next run"].right:
            code = _again(stage, "rerun_cell", "--config", f"cell={fault.cure}")
            cured = judge_report(project, code, SAME, ground.references)
            found["next run"] = Judgement(cured.right, f"marked; rerun_cell: {cured.text}")
        found["numbers"] = judge_numbers([*summaries, project.summary()], ground.references)
        still = project.left_running()
        if still and found["nothing left"].right:
            found["nothing left"] = Judgement(False, f"after the next run: {still}")
        found["foreign untouched"] = Judgement(alive(), "yes" if alive() else "one was ended")
        if stage.problems:
            found["first run ended"] = Judgement(False, "; ".join(stage.problems))
    return Outcome(fault, {column: found[column] for column in COLUMNS})


def _begin(fault: Fault, folder: Path, ground: Ground) -> Project:
    if fault.complete:
        shutil.copytree(ground.finished.folder, folder, symlinks=True)
        project = Project(folder.resolve())
    else:
        project = make_project(folder)
    project.set_host(fault.scenario, {**fault.host})
    project.configure(fault.config)
    return project


def _first_run(fault: Fault, stage: Stage, ground: Ground) -> dict[str, Judgement]:
    """Run with the fault, strike at its moment, and judge what can be judged before the fault is over."""
    project = stage.project
    before = project.sessions()
    stage.run = project.start("matrix_report", env=stage.env)
    if fault.strike:
        moment, deed = fault.strike
        if moment.await_in(stage):
            before = project.sessions()
            deed(stage)
        else:
            stage.problems.append("the moment to strike never came")
    code, text = stage.run.wait(), stage.run.text()
    found = {"first run ended": judge_end(code, text, project, stage.killed)}
    for clone, run in stage.clones:
        ended = judge_end(run.wait(), run.text(), clone, killed=False)
        numbers = judge_numbers([clone.summary()], ground.references)
        if not (ended.right and numbers.right):
            stage.problems.append(f"the clone: {ended.text}, {numbers.text}")
    still = project.left_running()
    found["nothing left"] = Judgement(not still, still or "yes")
    found["finished cells kept"] = judge_kept(before, project.sessions(), stage.spoiled)
    return found


def _again(stage: Stage, *words: str) -> int | None:
    return stage.project.start(*(words or ("matrix_report",)), env=stage.env).wait()


def _pace(fault: Fault) -> dict[str, object]:
    return {"serving": fault.host["serving"]} if "serving" in fault.host else {}


@contextlib.contextmanager
def foreign_processes(folder: Path) -> Iterator[Callable[[], bool]]:
    """Processes that look like ours and are not; yields a function that tells whether all of them still live."""
    folder.mkdir(parents=True, exist_ok=True)
    sleeper = shutil.which("sleep") or "sleep"
    started = []
    for words in _DECOYS:
        program = folder / words.split()[0].replace("::", "-")
        if not program.exists():
            shutil.copy(sleeper, program)
        started.append(
            subprocess.Popen([words, _DECOY_S], executable=program, cwd="/", start_new_session=True,
                             env={"PATH": os.defpath})
        )  # fmt: skip
    try:
        yield lambda: all(
            process.poll() is None and (found := entry(process.pid)) is not None and found.state not in "TZX"
            for process in started
        )
    finally:
        for process in started:
            process.terminate()
            process.wait()


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table; what did not hold is in bold."""
    rows: list[tuple[str, ...]] = [("fault", "what is done", *COLUMNS)]
    for outcome in outcomes:
        if outcome.skipped:
            cells = [f"not tried: {outcome.skipped}", *([""] * (len(COLUMNS) - 1))]
        else:
            cells = [_cell(outcome.judgements[column]) for column in COLUMNS]
        rows.append((f"`{outcome.fault.name}`", outcome.fault.what, *cells))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def _cell(judgement: Judgement) -> str:
    text = judgement.text.replace("|", "/")[:200]
    return text if judgement.right else f"**{text}**"
