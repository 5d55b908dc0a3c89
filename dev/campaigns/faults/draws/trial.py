"""One draw from beginning to end: the run that is struck, the fault's end, the run that mends, and the judgement."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.faults.draws.drawing import Draw, Strike
from campaigns.faults.draws.figures import differences, figures_of
from campaigns.faults.draws.ground import CONFIG, SECRET, Ground
from campaigns.faults.draws.judges import (
    MARKED,
    OTHER,
    SAME,
    judge_ended,
    judge_figures,
    judge_left,
    judge_report,
    judge_secret,
    judge_words,
)
from campaigns.faults.draws.sabotage import dry_run
from campaigns.faults.judging import Judgement, judge_kept
from campaigns.faults.project import Project
from campaigns.faults.running import foreign_processes
from campaigns.faults.stage import Stage
from virtualhost.host.state import HostState

_LOOK_S = 0.004
_BARE = ("--workflow-profile", "none", "--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "params")
_MISSED = ("there was no",)


@dataclass(frozen=True)
class Outcome:
    """What became of a draw: its ``end`` (``same``, ``other group``, ``marked``), all judgements, how long it took."""

    draw: Draw
    end: str
    struck: int
    judgements: Mapping[str, Judgement]
    seconds: float
    notes: Sequence[str] = ()

    @property
    def right(self) -> bool:
        """Whether everything held."""
        return all(judgement.right for judgement in self.judgements.values())

    def __str__(self) -> str:
        """In a line, and one for each thing that did not hold."""
        said = f"{self.end}, {self.struck} struck" if self.right else "DID NOT HOLD"
        lines = [f"draw {self.draw} -> {said} ({self.seconds:.0f} s){''.join(f', {note}' for note in self.notes)}"]
        lines += [f"  {name}: {found.text}" for name, found in self.judgements.items() if not found.right]
        return "\n".join(lines)


def run_draw(draw: Draw, folder: Path, ground: Ground) -> Outcome:
    """Try a draw in ``folder``; the folder is removed when everything held, else ``judged.txt`` says more."""
    begin = time.monotonic()
    judgements: dict[str, Judgement] = {}
    for strike in draw.strikes:
        if reason := strike.kind.impossible():
            return Outcome(draw, f"not tried: {reason}", 0, {}, 0.0)
    project = ground.copied(draw.start, folder)
    with foreign_processes(folder.parent / "foreign") as alive, contextlib.ExitStack() as closing:
        lifting = closing.enter_context(contextlib.ExitStack())
        stage = Stage(project, lifting, closing)
        project.configure(CONFIG)
        project.set_host(values=_host(draw))
        struck, before = _disturbed(draw, stage, judgements, ground)
        lifting.close()
        judgements["left after the fault"] = judge_left(project)
        judgements["kept"] = judge_kept(before, project.sessions(), stage.spoiled)
        _restore_host(project)
        if draw.dry:
            dry_run(stage)
        before = project.sessions()
        end = _mended(draw, stage, judgements, ground, before)
        judgements["left"] = judge_left(project)
        judgements["foreign"] = Judgement(alive(), "alive" if alive() else "a foreign process was ended")
        judgements["words"] = judge_words(project.folder)
        judgements["secret"] = judge_secret(project.folder, SECRET, ("fault.yaml", "bad.yaml"))
        problems = [text for text in stage.problems if not text.startswith(_MISSED)]
        judgements["deed"] = Judgement(not problems, "; ".join(problems) or "done")
    outcome = Outcome(draw, end, struck, judgements, time.monotonic() - begin, stage.notes)
    if outcome.right:
        shutil.rmtree(folder)
    else:
        unlike = differences(figures_of(project.results), ground.same.figures)
        (folder / "judged.txt").write_text("\n".join([str(outcome), "", "Unlike the undisturbed run:", *unlike, ""]))
    return outcome


def _disturbed(
    draw: Draw, stage: Stage, judgements: dict[str, Judgement], ground: Ground
) -> tuple[int, Mapping[str, bytes]]:
    """Run until the run ends, striking meanwhile; returns how many struck and the sessions that must be kept."""
    project, faults = stage.project, [strike.fault for strike in draw.strikes]
    for fault in faults:
        for deed in fault.prepare:
            deed(stage)
    command = next((fault.command for fault in faults if fault.command), ())
    before = project.sessions()
    if command:
        stage.run, before = project.command(*command, env=stage.env), {}  # a night measures everything anew
    else:
        stage.run = project.start("matrix_report", *_words(draw), cores=draw.cores[0], env=stage.env)
    struck = sum(bool(fault.prepare or fault.host or fault.between) for fault in faults)
    waiting = [strike for strike in draw.strikes if strike.fault.strike]
    while waiting and stage.run.process.poll() is None:
        due = [strike for strike in waiting if strike.moment.reached(project.folder)]
        for strike in due:
            time.sleep(strike.later_s)
            if not command:
                before = project.sessions()
            struck += _struck(strike, stage)
            waiting.remove(strike)
        time.sleep(_LOOK_S)
    code = stage.run.wait()
    judgements["ended"] = judge_ended(code, stage.run.text(), stage.killed)
    if command and code != 0:
        judgements["ended"] = Judgement(False, f"the night ended with {code}")
    if not stage.spoiled:
        judgements["first report"] = judge_report(project.summary(), ground.known(project.summary()))
    for fault in faults:
        for deed in fault.between:
            deed(stage)
    return struck, before


def _struck(strike: Strike, stage: Stage) -> int:
    assert strike.fault.strike is not None
    said = len(stage.problems)
    strike.fault.strike(stage)
    return int(len(stage.problems) == said)


def _mended(
    draw: Draw, stage: Stage, judgements: dict[str, Judgement], ground: Ground, before: Mapping[str, bytes]
) -> str:
    """Run again, the fault being over, and judge what is there then; returns how it ended."""
    project = stage.project
    run = project.start("matrix_report", *_words(draw), cores=draw.cores[1], env=stage.env)
    code = run.wait()
    judgements["next run"] = Judgement(code == 0, f"exit {code}")
    judgements["kept by the next run"] = judge_kept(before, project.sessions(), stage.spoiled)
    allowed = frozenset[str]().union(*(strike.kind.ends for strike in draw.strikes))
    forgets = any(strike.kind.forgets for strike in draw.strikes)
    same = ground.same
    found = judge_figures(project, same.figures, _compared(forgets=forgets))
    summary = project.summary() or {}
    judgements["report"] = judge_report(summary, ground.known(summary))
    if found.right or code != 0:
        judgements["figures"] = found
        return SAME
    contracts = {verdict["contract"] for verdict in summary.get("verdicts", ())}
    if OTHER in allowed and contracts and same.contract not in contracts:
        judgements["figures"] = judge_figures(project, ground.other.figures, _compared(ground.other.contract))
        return OTHER
    if MARKED in allowed:
        judgements.pop("report")
        # the form and the reference of its pair, which is the other one
        code = project.start("rerun_cell", "--config", "cell=tp2-usp2/anchor", env=stage.env).wait()
        judgements["figures"] = judge_figures(project, same.figures, _compared(same.contract))
        judgements["rerun"] = Judgement(code == 0, f"exit {code}")
        return MARKED
    judgements["figures"] = found
    return SAME


def _compared(contract: str = "", *, forgets: bool = False) -> Callable[[str], bool]:
    """Which places of the figures are compared: all, or the records of one contract; a history that forgets is not."""

    def compared(place: str) -> bool:
        if forgets and place.startswith("history.sqlite"):
            return False
        return not contract or place.startswith(f"{contract}/")

    return compared


def _words(draw: Draw) -> tuple[str, ...]:
    return () if draw.profile else _BARE


def _host(draw: Draw) -> dict[str, Any]:
    """The scenario of all faults of a draw; lists of the same thing are joined."""
    values: dict[str, Any] = {}
    for strike in draw.strikes:
        for key, value in strike.fault.host.items():
            values[key] = [*values.get(key, []), *value] if isinstance(value, list) else value
    return values


def _restore_host(project: Project) -> None:
    """The host is as it was: every card's driver is reset, nobody else is on it."""
    project.set_host()
    state = HostState(project.host / "state")
    for card in range(8):
        state.reset_card(card)
