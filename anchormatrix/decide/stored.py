"""The stored state of a contract: what its gates, its decision and its triggers rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from anchormatrix.decide.assemble import Stored
from anchormatrix.decide.cells import read_cells
from anchormatrix.decide.evidence import gather
from anchormatrix.decide.group_state import group_state
from anchormatrix.decide.left_behind import left_behind, planned_sessions, read_attributions, read_outputs
from anchormatrix.decide.theory.scaling import Measured
from anchormatrix.measure.bandwidth.curve import Curves
from anchormatrix.planning.configured import memory_limits
from anchormatrix.records.bandwidth import SizeSweep
from anchormatrix.records.conclusions.verdict import Verdict
from anchormatrix.records.contract import Contract, canonical_values
from anchormatrix.records.form import parse_form
from anchormatrix.records.plan import ContractPlan, RunPlan
from anchormatrix.records.requests import Role
from anchormatrix.records.session import Session, SessionStatus
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import read_requests


def read_stored(results: Path, contract: Contract, planned: ContractPlan, settings: Settings) -> Stored:
    """Everything that the gates of one contract rest on, from the results folder: of the planned forms and windows.

    Cells and verdict must be there; a missing capture or sweep, or cards of unknown memory, leave their gates unknown.
    Raises :class:`InputError` naming a file that is there and unusable.
    """
    folder, names = results / contract.id, planned.forms
    outputs = read_outputs(folder, contract.id)
    sessions = [outputs.applied_to(read_record(path, Session)) for path in planned_sessions(folder, planned)]
    return Stored(
        contract=contract,
        forms=tuple(map(parse_form, names)),
        sessions=sessions,
        cells=read_cells(folder / "cells.csv"),
        verdict=read_record(folder / "verdict.json", Verdict),
        model=settings.model,
        memory=None if planned.card_gb is None else memory_limits(settings, planned.card_gb),
        sweep=read_sweep(results / "bandwidth" / f"{contract.id}.json"),
        attributions=read_attributions(folder, names),
        outputs=outputs.sessions,
        skipped=_skipped(sessions, settings.matrix.windows),
        noise_floor_pct=settings.verdict.noise_floor_pct,
        left_behind=left_behind(folder, contract.id, names, settings),
        group=group_state(results, contract),
    )


def read_measured(results: Path, contract: Contract, plan: RunPlan, settings: Settings) -> Measured:
    """What was measured of a contract's planned forms: cells, verdict and captures. Raises :class:`InputError`."""
    folder, names = results / contract.id, plan.of(contract.id).forms
    cells, attributions = read_cells(folder / "cells.csv"), read_attributions(folder, names)
    verdict = read_record(folder / "verdict.json", Verdict)
    return Measured(contract, gather(map(parse_form, names), (), cells, attributions, settings.model, verdict))


def _skipped(sessions: Iterable[Session], windows: int) -> dict[str, str]:
    """Forms that were left out of a window which the full design would have measured."""
    return {
        session.form: session.reason
        for session in sessions
        if session.status is SessionStatus.SKIPPED and session.window <= windows
    }


def skipped_sessions(results: Path, planned: ContractPlan, settings: Settings) -> list[str]:
    """The sessions of the full design that the adaptive one left out, one sentence each."""
    found = []
    windows = settings.matrix.windows
    for path in planned_sessions(results / planned.id, planned):
        session = read_record(path, Session)
        if session.status is SessionStatus.SKIPPED and session.window <= windows:
            found.append(f"{session.form} in window {session.window}: {session.reason}")
    return found


def read_sweep(path: Path) -> Curves | None:
    """Read a size sweep; None when there is none."""
    return Curves(read_record(path, SizeSweep).points) if path.exists() else None


def fixed_costs(results: Path, planned: ContractPlan) -> dict[str, float]:
    """Median seconds of one request outside the DiT stage, by stage, over the planned sessions that were measured."""
    values: dict[str, list[float]] = {"encode": [], "decode": []}
    for path in planned_sessions(results / planned.id, planned):
        if read_record(path, Session).status is not SessionStatus.MEASURED:
            continue
        for row in read_requests(path):
            if row.role is Role.MEASURED:
                values["encode"] += [] if row.encode_s is None else [row.encode_s]
                values["decode"] += [] if row.decode_s is None else [row.decode_s]
    return {stage: median(found) for stage, found in values.items() if found}


def step_facts(settings: Settings) -> dict[str, Any]:
    """What the configuration says that shapes a step, flat: model figures, engine arguments, workload."""
    model, workload = canonical_values(msgspec.to_builtins([settings.model, settings.workload]))
    facts: dict[str, Any] = {f"model.{key}": value for key, value in model.items()}
    facts |= {"engine.kind": settings.engine.kind, "engine.model": settings.engine.model}
    facts["engine.extra_args"] = " ".join(settings.engine.extra_args)
    facts |= {f"engine.env.{key}": value for key, value in settings.engine.env.items()}
    facts |= {f"engine.options.{key}": value for key, value in canonical_values(dict(settings.engine.options)).items()}
    for key, value in workload.items():
        if isinstance(value, Mapping):
            facts |= {f"workload.{key}.{name}": item for name, item in value.items()}
        else:
            facts[f"workload.{key}"] = value
    facts |= {f"matrix.tiers.{tier}": steps for tier, steps in msgspec.structs.asdict(settings.matrix.tiers).items()}
    return facts
