"""The decisions of a run before its first job: its plan, and which results must be made again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from anchormatrix.config.merge import build_settings, merged
from anchormatrix.devices.probe import probe_host
from anchormatrix.history.noise import Before, start_noise
from anchormatrix.history.progress import Durations, Progress, read_durations
from anchormatrix.planning.configured import matrix_design
from anchormatrix.planning.contracts import list_contracts, read_ledger
from anchormatrix.planning.outlook.expected import Expected, Work, expect
from anchormatrix.planning.outlook.forecast import Forecast, forecast, forecast_lines
from anchormatrix.planning.promising import left_out_words
from anchormatrix.planning.rerun import cell_notices, check_measured, reference_of, split_cell
from anchormatrix.planning.run_plan import make_run_plan, run_plan_file, write_run_plan
from anchormatrix.planning.triggers import digest
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.contract import Contract, ContractList, GroupCondition, LedgerEntry
from anchormatrix.records.host import HostProbe
from anchormatrix.records.night import Place, deadline_of, resolve_night
from anchormatrix.records.plan import RunPlan
from anchormatrix.records.settings.values import Design
from anchormatrix.records.settings.whole import Settings
from anchormatrix.records.smoke import SmokeStatus
from anchormatrix.store.files import write_text
from anchormatrix.store.notes import StoredResults

Smoked = Callable[[str], object]


def _assume_passed(contract_id: str) -> None:
    """Wait for no smoke: one that was not made yet will pass."""


@dataclass(frozen=True)
class Run:
    """The settings of a run, the live host as it was read, the contracts that follow from both, and the plan."""

    settings: Settings
    config_file: str
    config_text: str
    results: Path
    live: HostProbe
    chosen: ContractList
    plan: RunPlan
    plan_file: str
    stored: StoredResults
    ledger: Sequence[LedgerEntry] = ()

    @cached_property
    def contract_ids(self) -> str:
        """The ids of all candidate contracts as one argument."""
        return ",".join(sorted(contract.id for contract in self.plan.contracts)) or "none"

    def contracts(self, smoked: Smoked = _assume_passed) -> tuple[str, ...]:
        """The contract of every size that has a usable group: its first candidate whose smoke does not reject it.

        ``smoked`` is called with each candidate before its smoke is looked at, and may wait for that.
        """
        found = (self._contract_of(size, smoked) for size in self.settings.matrix.sizes)
        return tuple(contract for contract in found if contract is not None)

    def forms_of(self, contract_id: str) -> tuple[str, ...]:
        """The names of the forms measured under a contract, in the order of its first window."""
        return self.plan.of(contract_id).forms

    def sessions_of(self, contract_id: str) -> tuple[Place, ...]:
        """Every session of a contract, in the order they run."""
        return tuple(Place(contract_id, item.form, item.window) for item in self.plan.of(contract_id).sessions)

    def sessions_before(self, contract_id: str, form: str, window: int) -> tuple[Place, ...]:
        """The sessions that one of a contract rests on: the one just before it, or all under the adaptive design."""
        places = self.sessions_of(contract_id)
        before = places[: places.index(Place(contract_id, form, window))]
        return before if self.settings.matrix.design == "adaptive" else before[-1:]

    def must_run(self, contract_id: str, form: str, window: int) -> bool:
        """Whether a session has no result yet, is asked for again, or its result is of another night."""
        path = self.stored.session(contract_id, form, window)
        if form in self.again(contract_id) or not self.stored.exists(path):
            return True
        return self.stored.night(path) != self.contract_night(contract_id)

    def again(self, contract_id: str) -> tuple[str, ...]:
        """The forms measured again by ``cell=FORM/TIER``: that form and the reference form of its pair."""
        if not self.settings.cell:
            return ()
        form, _ = split_cell(self.settings)
        forms = self.forms_of(contract_id)
        if form.name not in forms:
            return ()
        return tuple(name for name in forms if name in (form.name, reference_of(form.name, forms)))

    def session_generation(self, contract_id: str, form: str, window: int) -> int:
        """How often a session has been asked for again: stays what it was until someone asks once more."""
        done = self.stored.generation(self.stored.session(contract_id, form, window))
        return done + 1 if form in self.again(contract_id) else done

    def smoke_generation(self, contract_id: str) -> int:
        """The same for the smoke of a contract's group: a cell measured again starts with a fresh one."""
        done = self.stored.generation(self.stored.smoke(contract_id))
        return done + 1 if self.again(contract_id) else done

    def contract_night(self, contract_id: str) -> str:
        """The night that all sessions of a contract belong to: the one asked for, else the latest that has any.

        So a night that was cut off is finished by the next run, and a matrix never mixes two nights.
        """
        return self.settings.night or self.stored.latest_night(contract_id)

    def smoke_must_run(self, contract_id: str) -> bool:
        """Whether a group has no smoke yet or needs a new one: its cards' state or the night changed, a cell again."""
        path = self.stored.smoke(contract_id)
        if self.again(contract_id) or not self.stored.exists(path):
            return True
        if self.stored.night(path) != self.smoke_night(contract_id):
            return True
        return self.stored.smoke_state(contract_id) != self.state_of(contract_id)

    @property
    def asked(self) -> str:
        """A file that is newer than any result before this run: what must be made anew depends on it.

        Snakemake notes the parameters of a job even when it fails and its older result is put back, and would take that
        result for the new one. The file's age does not depend on how the last try ended.
        """
        return str(self.results / ".run" / "asked")

    def write_files(self) -> None:
        """Write what the commands of the run read, and what is newer than any result; to be called once it may write.

        Raises :class:`WriteError`.
        """
        config = Path(self.config_file)
        if not config.exists() or config.read_bytes() != self.config_text.encode("utf-8"):
            write_text(config, self.config_text)
        write_run_plan(self.plan, self.results)
        write_text(self.asked, f"{time.time_ns()}\n")

    def smoke_night(self, contract_id: str) -> str:
        """The night of a contract's smoke: the one asked for, else the one it was made in."""
        return self.settings.night or self.stored.night(self.stored.smoke(contract_id))

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person must know before the run starts: a history that is not used, sizes of which no form was held
        against the cards' memory, what measuring a size will tell and cost, and a cell that is another one now.
        """
        if not self.settings.cell:
            return (*self.plan.notices, *self._about_forms(), *forecast_lines(self._forecasts()))
        form, _ = split_cell(self.settings)
        planned = self.plan.of_size(form.cards)
        sessions = len(planned[0].sessions) if planned else 0
        return (*self.plan.notices, *cell_notices(form, self.chosen, self.ledger, sessions))

    @property
    def deadline(self) -> str:
        """Until when a nightly sweep may measure, in local time as ``2026-12-01T06:00``; empty without a night.

        It is no parameter of a job: a result does not become another one because the hour differs.
        """
        if not self.settings.night:
            return ""
        return f"{deadline_of(self.settings.night, self.settings.nightly.deadline):%Y-%m-%dT%H:%M}"

    @cached_property
    def progress(self) -> Progress:
        """The sessions this run has to measure, in order, with what they took before."""
        pending = [
            place for place in self.planned_sessions() if self.must_run(place.contract, place.form, place.window)
        ]
        return Progress(tuple(pending), self._durations)

    def planned_sessions(self) -> tuple[Place, ...]:
        """Every session of the matrix as it stands now, measured or not: of each size's first group not rejected."""
        return tuple(place for contract in self.contracts() for place in self.sessions_of(contract))

    def state_of(self, contract_id: str) -> GroupCondition:
        """Health and occupancy of a contract's cards; when it changes, a new smoke is necessary."""
        return self.plan.of(contract_id).state

    def smoke_rejects(self, contract_id: str) -> bool:
        """Whether the last smoke of a group rejects it, in the state of health that its cards are in now."""
        state = self.state_of(contract_id)
        return (
            self.stored.smoke_status(contract_id) is SmokeStatus.REJECTED
            and self.stored.smoke_state(contract_id) == state
        )

    def _about_forms(self) -> Iterator[str]:
        """Lines for each size of which the memory gate could not judge, or possible forms are left out."""
        for planned in map(self.plan.of, self.contracts()):
            words = (planned.memory_unchecked, left_out_words(planned))
            yield from (f"{planned.size} cards: {text}" for text in words if text)

    def expected(self, sessions: Sequence[Place], smokes: Sequence[str], sweeps: Sequence[str]) -> Expected:
        """What measuring these sessions, smokes and sweeps of contracts will take."""
        least = {found.size: found.least for found in self._forecasts()}
        adaptive = self.settings.matrix.design == Design.ADAPTIVE
        works = []
        for planned in self.plan.contracts:
            own = tuple(place for place in sessions if place.contract == planned.id)
            whole = adaptive and len(own) == len(planned.sessions)
            works.append(
                Work(
                    size=planned.size,
                    sessions=own,
                    least=least.get(planned.size, 0) if whole else 0 if adaptive else len(own),
                    smoke=planned.id in smokes,
                    sweep=planned.id in sweeps,
                    step_s=self.stored.smoke_step_s(planned.id),
                )
            )
        return expect(works, self.settings, self._durations)

    def _forecasts(self) -> Iterator[Forecast]:
        """The forecast of every size of which nothing is measured yet."""
        for planned in map(self.plan.of, self.contracts()):
            if all(self.must_run(planned.id, item.form, item.window) for item in planned.sessions):
                found = forecast(planned, matrix_design(self.settings, planned.noise), self._durations)
                if found:
                    yield found

    @cached_property
    def _durations(self) -> Durations:
        return read_durations(self.settings.history.file, self.contracts())

    def _contract_of(self, size: int, smoked: Smoked) -> str | None:
        for planned in self.plan.of_size(size):
            smoked(planned.id)
            if not self.smoke_rejects(planned.id):
                return planned.id
        return None


def prepare_run(config_files: Sequence[Path | str], overrides: Mapping[str, Any], results: Path) -> Run:
    """Check the configuration, read the live host once, and make the plan of a run.

    Changes nothing: :meth:`Run.write_files` writes the effective configuration and the plan, which every command of the
    run reads, to ``results/.run/config-<digest>.json`` and ``plan-<digest>.json``.
    Raises an :class:`AnchorMatrixError` when the configuration is wrong or the host cannot be read.
    """
    values = merged([Path(path) for path in config_files], overrides)
    if "night" in values:
        values["night"] = resolve_night(str(values["night"]), datetime.now())
    settings = build_settings(values)
    live = probe_host(settings)
    ledger = read_ledger(results / "contracts.jsonl", sound=True)
    chosen = list_contracts(live, settings, ledger)
    stored = StoredResults(results)
    plan = make_run_plan(settings, live, chosen, lambda one: _known_noise(one, settings, chosen, ledger, stored))
    if settings.cell:
        form, _ = split_cell(settings)
        for planned in plan.of_size(form.cards)[:1]:
            check_measured(form, planned.forms)
    config_file, config_text = _effective_config(values, results)
    plan_file = str(run_plan_file(plan, results))
    return Run(settings, config_file, config_text, results, live, chosen, plan, plan_file, stored, ledger)


def _known_noise(
    contract: Contract, settings: Settings, chosen: ContractList, ledger: Sequence[LedgerEntry], stored: StoredResults
) -> StartNoise | None:
    """The noise that history tells of, by what was measured before the matrix that results/ holds or is about to get.

    Nothing that this matrix measures counts, on whichever group of its size: so the plan stays the same during the run,
    after it, and when a cell is measured again.
    """
    groups = {one.id for one in chosen.of_size(contract.size)}
    if night := settings.night or max(map(stored.latest_night, groups)):
        return start_noise(settings.history.file, contract, Before(night=night))
    begun = min((entry.when for entry in ledger if entry.id in groups), default="")
    return start_noise(settings.history.file, contract, Before(moment=begun.rstrip("Z")))


def put_interpreter_first() -> None:
    """Let every command of the run find this interpreter, whether its environment was activated or not."""
    folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])


def _effective_config(values: Mapping[str, Any], results: Path) -> tuple[str, str]:
    """The file of the effective configuration, and its text."""
    plain = {key: value for key, value in values.items() if key not in ("cell", "night")}
    path = results / ".run" / f"config-{digest(plain)}.json"
    return str(path), json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
