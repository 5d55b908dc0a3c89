"""What one run of the workflow needs to know before its first job: settings, contracts, forms, order of sessions."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from anchormatrix.config.merge import build_settings, merged
from anchormatrix.devices.probe import read_live
from anchormatrix.errors import InputError
from anchormatrix.history.progress import Progress, read_durations
from anchormatrix.planning.configured import adaptive_limits, candidates_of
from anchormatrix.planning.contracts import Plan, Planned, make_plan, read_ledger
from anchormatrix.planning.rerun import cell_notices, check_measured, reference_of, split_cell
from anchormatrix.planning.triggers import digest
from anchormatrix.records.contract import Contract
from anchormatrix.records.form import Form
from anchormatrix.records.host import Live
from anchormatrix.records.night import DEADLINE, Place, deadline_of, resolve_night
from anchormatrix.records.settings import Settings
from anchormatrix.store.files import write_text
from anchormatrix.store.notes import StoredResults
from anchormatrix.store.quarantine import set_aside


@dataclass(frozen=True)
class RunPlan:
    """The settings of a run, the live host as it was read, and the contracts that follow from both."""

    settings: Settings
    config_file: str
    results: Path
    live: Live
    plan: Plan
    ledger: Sequence[Mapping[str, Any]] = ()
    damage: tuple[str, ...] = ()

    @cached_property
    def contract_ids(self) -> str:
        """The ids of all candidate contracts as one argument."""
        return ",".join(sorted(planned.contract.id for planned in self.plan.contracts)) or "none"

    def planned(self, contract_id: str) -> Planned:
        """The plan's entry of a contract. Raises :class:`InputError` for a contract that is not a current one."""
        for planned in self.plan.contracts:
            if planned.contract.id == contract_id:
                return planned
        raise InputError(
            f"{contract_id} is not a contract of the host as it is now",
            where="target",
            expected=f"one of {self.contract_ids}",
        )

    def forms_of(self, contract_id: str) -> tuple[str, ...]:
        """The names of the forms measured under a contract, in the order of its first window."""
        if contract_id not in self._form_names:
            forms = self._forms(self.planned(contract_id).contract)
            self._form_names[contract_id] = tuple(form.name for form in forms)
        return self._form_names[contract_id]

    def sessions_of(self, contract_id: str) -> tuple[tuple[str, int], ...]:
        """Form and window of every session of a contract, in the order they run.

        Windows are adjacent and every second one runs in reverse order.
        """
        if contract_id not in self._orders:
            forms = self.forms_of(contract_id)
            order = [
                (name, number) for number in range(1, self.windows + 1) for name in forms[:: 1 if number % 2 else -1]
            ]
            self._orders[contract_id] = {place: order[at - 1] if at else None for at, place in enumerate(order)}
        return tuple(self._orders[contract_id])

    def session_before(self, contract_id: str, form: str, window: int) -> tuple[str, int] | None:
        """The session that runs just before one, if it is not the contract's first."""
        self.sessions_of(contract_id)
        return self._orders[contract_id][form, window]

    def must_run(self, contract_id: str, form: str, window: int) -> bool:
        """Whether a session has no result yet, is asked for again, or its result is of another night."""
        path = self._stored.session(contract_id, form, window)
        if form in self.again(contract_id) or not path.exists():
            return True
        return self._stored.night(path) != self.contract_night(contract_id)

    def again(self, contract_id: str) -> tuple[str, ...]:
        """The forms measured again by ``cell=FORM/TIER``: that form and the reference form of its pair."""
        if self.settings.cell is None:
            return ()
        form, _ = split_cell(self.settings)
        forms = self.forms_of(contract_id)
        if form.cards != self.planned(contract_id).contract.size or form.name not in forms:
            return ()
        return tuple(name for name in forms if name in (form.name, reference_of(form.name, forms)))

    def session_generation(self, contract_id: str, form: str, window: int) -> int:
        """How often a session has been asked for again: stays what it was until someone asks once more."""
        done = self._stored.generation(self._stored.session(contract_id, form, window))
        return done + 1 if form in self.again(contract_id) else done

    def smoke_generation(self, contract_id: str) -> int:
        """The same for the smoke of a contract's group: a cell measured again starts with a fresh one."""
        done = self._stored.generation(self._stored.smoke(contract_id))
        return done + 1 if self.again(contract_id) else done

    def contract_night(self, contract_id: str) -> str:
        """The night that all sessions of a contract belong to: the one asked for, else the latest that has any.

        So a night that was cut off is finished by the next run, and a matrix never mixes two nights.
        """
        if self.settings.night is not None:
            return self.settings.night
        if contract_id not in self._contract_nights:
            nights = (self._stored.night(self._stored.session(*place)) for place in self._places(contract_id))
            self._contract_nights[contract_id] = max(nights, default="")
        return self._contract_nights[contract_id]

    def smoke_must_run(self, contract_id: str) -> bool:
        """Whether a group has no smoke yet or needs a new one: its cards' state or the night changed, a cell again."""
        path = self._stored.smoke(contract_id)
        if self.again(contract_id) or not path.exists():
            return True
        if self._stored.night(path) != self.smoke_night(contract_id):
            return True
        return self._stored.smoke_state(contract_id) != self.state_of(contract_id)

    @cached_property
    def asked(self) -> str:
        """A file that is newer than any result before this run: what must be made anew depends on it.

        Snakemake notes the parameters of a job even when it fails and its older result is put back, and would take that
        result for the new one. The file's age does not depend on how the last try ended.
        """
        path = self.results / ".run" / "asked"
        write_text(path, f"{time.time_ns()}\n")
        return str(path)

    def smoke_night(self, contract_id: str) -> str:
        """The night of a contract's smoke: the one asked for, else the one it was made in."""
        return self.settings.night or self._stored.night(self._stored.smoke(contract_id))

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person must know before the run starts: damaged results, and a cell that is another one now."""
        if self.settings.cell is None:
            return self.damage
        form, _ = split_cell(self.settings)
        planned = self.plan.of_size(form.cards)
        sessions = len(self._places(planned[0].contract.id)) if planned else 0
        return (*self.damage, *cell_notices(form, self.plan, self.ledger, sessions))

    @property
    def environment(self) -> dict[str, str]:
        """What measuring commands find in their environment: until when a nightly sweep may measure.

        It is no parameter of a job: a result does not become another one because the hour differs.
        """
        if self.settings.night is None:
            return {}
        deadline = deadline_of(self.settings.night, self.settings.nightly.deadline)
        return {DEADLINE: f"{deadline:%Y-%m-%dT%H:%M}"}

    @cached_property
    def progress(self) -> Progress:
        """The sessions this run has to measure, in order, with what they took before."""
        chosen = [
            next((p.contract.id for p in self.plan.of_size(size) if not self.smoke_rejects(p.contract.id)), None)
            for size in self.settings.matrix.sizes
        ]
        contracts = [contract for contract in chosen if contract is not None]
        pending = [Place(*place) for contract in contracts for place in self._places(contract) if self.must_run(*place)]
        return Progress(tuple(pending), read_durations(self.settings.history.file, contracts))

    def planned_sessions(self) -> tuple[Place, ...]:
        """Every session of the matrix as it stands now, measured or not: of each size's first group not rejected."""
        return tuple(
            Place(*place)
            for size in self.settings.matrix.sizes
            for planned in [p for p in self.plan.of_size(size) if not self.smoke_rejects(p.contract.id)][:1]
            for place in self._places(planned.contract.id)
        )

    def state_of(self, contract_id: str) -> str:
        """Health and occupancy of a contract's cards as one word; a changed word makes a new smoke necessary."""
        return self.planned(contract_id).state

    def smoke_rejects(self, contract_id: str) -> bool:
        """Whether the last smoke of a group rejects it, in the state of health that its cards are in now."""
        state = self.state_of(contract_id)
        return self._stored.smoke_status(contract_id) == "rejected" and self._stored.smoke_state(contract_id) == state

    @property
    def windows(self) -> int:
        """Windows that sessions are planned for; the adaptive design may need more, and leaves most of those out."""
        limits = adaptive_limits(self.settings)
        return self.settings.matrix.windows if limits is None else limits.all_windows

    def _forms(self, contract: Contract) -> tuple[Form, ...]:
        """The forms that the model, the engine and the cards' memory allow, of those configured."""
        sizes = [self.live.state.card(card).hbm_total_mb for card in contract.cards]
        card_gb = min(sizes) * 2**20 / 1e9 if all(sizes) else None
        key = contract.size, card_gb
        if key not in self._candidates:
            self._candidates[key] = candidates_of(self.settings, contract.size, card_gb=card_gb).forms
        return self._candidates[key]

    def _places(self, contract_id: str) -> list[tuple[str, str, int]]:
        """Contract, form and window of every session of a contract, in the order they run."""
        return [(contract_id, *place) for place in self.sessions_of(contract_id)]

    @cached_property
    def _stored(self) -> StoredResults:
        return StoredResults(self.results)

    @cached_property
    def _candidates(self) -> dict[tuple[int, float | None], tuple[Form, ...]]:
        return {}

    @cached_property
    def _form_names(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def _orders(self) -> dict[str, dict[tuple[str, int], tuple[str, int] | None]]:
        """Contract -> session -> the one before it, in the order they run."""
        return {}

    @cached_property
    def _contract_nights(self) -> dict[str, str]:
        return {}


def prepare_run(config_files: Sequence[Path | str], overrides: Mapping[str, Any], results: Path) -> RunPlan:
    """Check the configuration, read the live host once, and make the plan of a run.

    Writes the effective configuration to ``results/.run/config-<digest>.json``, which every command of the run reads.
    Results that are damaged are set aside before anything is planned, so that the run makes them again.
    Raises an :class:`AnchorMatrixError` when the configuration is wrong or the host cannot be read.
    """
    values = merged([Path(path) for path in config_files], overrides)
    if "night" in values:
        values["night"] = resolve_night(str(values["night"]), datetime.now())
    settings = build_settings(values)
    live = read_live(settings)
    damage = set_aside(results)
    ledger = read_ledger(results / "contracts.jsonl")
    plan = make_plan(live, settings, ledger)
    run = RunPlan(settings, str(_effective_config(values, results)), results, live, plan, ledger, damage)
    if settings.cell is not None:
        form, _ = split_cell(settings)
        for planned in plan.of_size(form.cards)[:1]:
            check_measured(form, run.forms_of(planned.contract.id))
    return run


def put_interpreter_first() -> None:
    """Let every command of the run find this interpreter, whether its environment was activated or not."""
    folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])


def _effective_config(values: Mapping[str, Any], results: Path) -> Path:
    plain = {key: value for key, value in values.items() if key not in ("cell", "night")}
    path = results / ".run" / f"config-{digest(plain)}.json"
    text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        write_text(path, text)
    return path
