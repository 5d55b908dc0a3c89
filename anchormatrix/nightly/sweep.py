"""One nightly sweep: the workflow started under a lock, again where it failed, judged, reported, told to a hook.

Everything that matters lies in files and in the history, so a sweep killed at any moment goes on when it is started
again for the same night: finished sessions stay, the others are measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from anchormatrix.config.secrets import masked, revealed_all, without_values
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.history import nights
from anchormatrix.history.export import prune
from anchormatrix.history.keeping import Keeper
from anchormatrix.history.record import record_results
from anchormatrix.history.review import Limits, Review, review_night
from anchormatrix.hosts.owner import name_owner
from anchormatrix.records.night import NOT_STARTED, NightOutcome, Place, deadline_of
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import plain

HOOK_LIMIT_S = 60.0
_LOOK_AGAIN_S = 1.0
_OUTPUT_LIMIT = 300
_NIGHTS_SHOWN = 30

Say = Callable[[str], None]
Workflow = Callable[[Sequence[str]], int]
Planned = Callable[[], Sequence[Place]]
Publish = Callable[[Review, Sequence[nights.Night]], None]


@dataclass(frozen=True)
class Sweep:
    """What a night's sweep works with.

    ``workflow`` runs the nightly target once, measuring the given result files anew, and returns its exit code;
    ``planned`` reads the live host and names every session of the matrix; ``publish`` writes the nightly page
    from the review and the last nights.
    """

    settings: Settings
    results: Path
    night: str
    workflow: Workflow
    planned: Planned
    publish: Publish
    say: Say
    now: Callable[[], datetime] = datetime.now

    @property
    def deadline(self) -> datetime:
        """Nothing is started that cannot finish before it; local time."""
        return deadline_of(self.night, self.settings.nightly.deadline)


def run_night(sweep: Sweep) -> tuple[NightOutcome, Review | None]:
    """Run a night's sweep to its end, publish its page and tell the hook. One at a time per results folder.

    Whatever is wrong with the history is said and hinders nothing.
    """
    keeper = Keeper(Path(sweep.settings.history.file), sweep.results)
    with _lock(sweep.results / ".night.lock") as free:
        if not free:
            problem = "another nightly sweep of this results folder is still running"
            sweep.say(problem)
            _note(sweep, keeper, f"{sweep.now():%H:%M}: a second sweep was started and ended at once: {problem}")
            told = {"night": sweep.night, "problem": problem, "history": keeper.notices}
            _tell(sweep, keeper, NightOutcome.COULD_NOT_MEASURE, told)
            return NightOutcome.COULD_NOT_MEASURE, None
        return _run(sweep, keeper)


def _run(sweep: Sweep, keeper: Keeper) -> tuple[NightOutcome, Review]:
    keeper.look_after()
    keeper.say_what_is_new(sweep.night)
    keeper.on(lambda history: nights.begin(history, sweep.night, sweep.now(), sweep.deadline))
    _say_all(sweep, keeper)
    _catch_up(sweep, keeper)
    problem, code = _measure(sweep, keeper)
    _catch_up(sweep, keeper)
    planned: Sequence[Place] = ()
    try:
        planned = sweep.planned()
    except AnchorMatrixError as error:
        problem = problem or f"the host cannot be read: {error}"
    review = _judged(sweep, keeper, planned, problem)
    if code and review.outcome is NightOutcome.FINE:
        problem = f"everything was measured, but the workflow ended with exit code {code}: see {sweep.results}/logs"
        review = replace(review, problem=problem)
    if waiting := keeper.waiting_words(sweep.night):
        keeper.say(waiting)
    review = replace(review, history=tuple(keeper.notices))
    notes = [*([review.problem] if review.problem else []), *review.history]
    keeper.on(lambda history: nights.end(history, sweep.night, sweep.now(), review.outcome, notes))
    review = _published(sweep, keeper, review)
    keeper.on(lambda history: prune(history, sweep.settings.history.keep_nights))
    keeper.remember(sweep.night)
    _say_all(sweep, keeper)
    sweep.say(f"night {sweep.night}: {review.outcome.value}")
    _tell(sweep, keeper, review.outcome, plain(review.summary()))
    return review.outcome, review


def _judged(sweep: Sweep, keeper: Keeper, planned: Sequence[Place], problem: str) -> Review:
    limits = Limits(sweep.settings.verdict.dispersion_pct, sweep.settings.verdict.noise_floor_pct)
    return keeper.on(lambda history: review_night(history, sweep.night, planned, limits, problem=problem))


def _published(sweep: Sweep, keeper: Keeper, review: Review) -> Review:
    """Publish a night's page; one that cannot be written is a problem of the night, not its end."""
    try:
        sweep.publish(review, keeper.on(lambda history: nights.last_nights(history, _NIGHTS_SHOWN, sweep.night)))
    except (AnchorMatrixError, OSError) as error:
        problem = f"the nightly page cannot be written: {error}"
        sweep.say(problem)
        return replace(review, problem=review.problem or problem)
    return review


def _say_all(sweep: Sweep, keeper: Keeper) -> None:
    for notice in keeper.notices[keeper.said :]:
        sweep.say(notice)
    keeper.said = len(keeper.notices)


def _measure(sweep: Sweep, keeper: Keeper) -> tuple[str, int]:
    """Call the workflow until everything is measured, tries run out, or the deadline comes.

    Returns what hindered the whole night, and the exit code of the last call.
    """
    if sweep.now() >= sweep.deadline:
        late = f"missed: started at {sweep.now():%Y-%m-%d %H:%M}, after the deadline {sweep.deadline:%Y-%m-%d %H:%M}"
        return late, 0
    if not _wait_for_results(sweep):
        return "another run held the results folder until the deadline", 0
    again: Sequence[str] = ()
    for attempt in range(1 + sweep.settings.nightly.retries):
        if attempt:
            sweep.say(f"retry {attempt} of {sweep.settings.nightly.retries}: {', '.join(again) or 'what failed'}")
        code = sweep.workflow(again)
        _catch_up(sweep, keeper)
        again = _to_measure_again(sweep, keeper)
        if (code == 0 and not again) or sweep.now() >= sweep.deadline:
            break
    nothing = code != 0 and not keeper.on(lambda history: nights.measured_sessions(history, sweep.night))
    return f"the workflow ended with exit code {code} and measured nothing" if nothing else "", code


def _to_measure_again(sweep: Sweep, keeper: Keeper) -> list[str]:
    """Sessions of tonight without a number whose form had one in earlier nights: their result files."""
    endless = Limits(float("inf"), float("inf"))
    review = keeper.on(lambda history: review_night(history, sweep.night, (), endless))
    return [
        str(sweep.results / item.place.contract / item.place.form / f"w{item.place.window}" / "session.json")
        for item in review.sessions
        if (item.lost or item.unmeasured) and item.status != NOT_STARTED
    ]


def _catch_up(sweep: Sweep, keeper: Keeper) -> None:
    new, problems = keeper.on(lambda history: record_results(history, sweep.results))
    _say_all(sweep, keeper)
    if new:
        sweep.say(f"recorded {new} sessions that the history lacked")
    for problem in problems:
        sweep.say(f"not recorded: {problem}")


def _note(sweep: Sweep, keeper: Keeper, text: str) -> None:
    keeper.on(lambda history: nights.note(history, sweep.night, text, sweep.now(), sweep.deadline))
    _say_all(sweep, keeper)


def _wait_for_results(sweep: Sweep) -> bool:
    """Wait while another run (one left by a killed sweep, or a person's) holds the results folder."""
    told = False
    while True:
        with _lock(sweep.results / ".lock") as free:
            if free:
                return True
        if sweep.now() >= sweep.deadline:
            return False
        if not told:
            sweep.say("waiting for the run that holds the results folder")
            told = True
        time.sleep(_LOOK_AGAIN_S)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Try a lock that the kernel releases when its holder ends in any way; says whether it was free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _tell(sweep: Sweep, keeper: Keeper, outcome: NightOutcome, told: Mapping[str, Any]) -> None:
    """Run the hook. Whatever it does, the sweep's outcome stays: a failure or a hang is only noted."""
    hook = sweep.settings.nightly.hook
    if not hook:
        return
    page = sweep.results / "nightly" / "index.html"
    problem = call_hook(
        hook,
        {"schema": 1, **told, "outcome": outcome.value, "exit_code": outcome.exit_code, "report": str(page.resolve())},
        limit_s=HOOK_LIMIT_S,
    )
    if problem:
        sweep.say(problem)
        _note(sweep, keeper, problem)


def call_hook(argv: Sequence[str], told: Mapping[str, Any], *, limit_s: float) -> str:
    """Run a hook with the outcome as JSON on its standard input and as ``ANCHORMATRIX_…`` variables.

    Returns what went wrong in one line, or nothing; never raises. A hook that hangs is killed with what it started in
    its own process group.
    """
    env = {
        **without_values(os.environ),
        "ANCHORMATRIX_NIGHT": str(told["night"]),
        "ANCHORMATRIX_OUTCOME": str(told["outcome"]),
        "ANCHORMATRIX_EXIT_CODE": str(told["exit_code"]),
        "ANCHORMATRIX_REPORT": str(told["report"]),
    }
    try:
        hook = subprocess.Popen(
            revealed_all(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return f"nightly.hook cannot be run: {error}"
    try:
        output, _ = hook.communicate(json.dumps(told).encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)
        hook.wait()
        return f"nightly.hook did not end within {limit_s:g} s and was stopped"
    if hook.returncode == 0:
        return ""
    words = " ".join(masked(output.decode(errors="replace")).split())[-_OUTPUT_LIMIT:]
    return f"nightly.hook ended with exit code {hook.returncode}: {words}"


def run_workflow(argv: Sequence[str], folder: Path) -> int:
    """Run the workflow to its end in a process group of its own and return its exit code.

    When this process is asked to stop (SIGTERM, Ctrl-C), so is the whole group: the session that runs stops its server
    gently, and no other is started. Raises ``SystemExit`` when everything has ended. When this process is killed, the
    workflow notices, lets the session that runs finish and ends, so that the sweep can be started again.
    """
    name_owner()
    child = subprocess.Popen(list(argv), cwd=folder, start_new_session=True)
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        asked.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = child.wait()  # goes on after the handler, which must not wait itself: this call holds the child's lock
        if asked:
            raise SystemExit(128 + asked[0])
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
