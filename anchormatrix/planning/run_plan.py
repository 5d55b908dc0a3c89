"""The plan of a run: made of the configuration and the chosen contracts, written beside the run's configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.history.store import why_unreadable
from anchormatrix.planning.adaptive import sequence
from anchormatrix.planning.candidates import Candidates
from anchormatrix.planning.configured import candidates_of, matrix_design
from anchormatrix.planning.memory import NO_CARD_MEMORY
from anchormatrix.planning.triggers import digest
from anchormatrix.records.conclusions.selection import StartNoise
from anchormatrix.records.contract import Contract, ContractList, ListedContract
from anchormatrix.records.host import HostProbe
from anchormatrix.records.plan import ContractPlan, PlannedSession, RuledOut, RunPlan
from anchormatrix.records.settings.whole import Settings
from anchormatrix.store.codec import plain, read_record, write_record

_TODO = "snakemake -n in the project's folder makes a new one"


def make_run_plan(
    settings: Settings,
    live: HostProbe,
    chosen: ContractList,
    noise_of: Callable[[Contract], StartNoise | None],
) -> RunPlan:
    """Decide for every contract which forms are measured and in which order its sessions run.

    ``noise_of`` tells what is known of the noise between server starts under a contract.
    """
    windows, version = matrix_design(settings).windows, live.stack.framework_version
    known: dict[tuple[int, float | None], Candidates] = {}
    contracts = []
    for planned in chosen.contracts:
        card_gb = live.health.memory_gb(planned.cards)
        key = planned.size, card_gb
        if key not in known:
            known[key] = candidates_of(settings, planned.size, card_gb=card_gb, version=version)
        contracts.append(_contract_plan(planned, card_gb, known[key], windows, noise_of(planned), version))
    return RunPlan(contracts=tuple(contracts), history_unused=why_unreadable(settings.history.file))


def run_plan_file(plan: RunPlan, results: Path) -> Path:
    """The file of a plan: ``plan-<digest>.json`` in the folder of the run's configuration."""
    return results / ".run" / f"plan-{digest(plain(plan))}.json"


def write_run_plan(plan: RunPlan, results: Path) -> Path:
    """Write a plan to its file; also an old plan is the newest then."""
    path = run_plan_file(plan, results)
    write_record(path, plan)
    return path


def read_run_plan(path: Path) -> RunPlan:
    """Read a plan. Raises :class:`InputError`."""
    return read_record(path, RunPlan, todo=_TODO)


def find_run_plan(given: Path | None, results: Path) -> RunPlan | None:
    """The given plan, else that of the latest run on a results folder; None when there was none."""
    if given:
        return read_run_plan(given)
    paths = sorted((results / ".run").glob("plan-*.json"), key=lambda path: path.stat().st_mtime_ns)
    return read_run_plan(paths[-1]) if paths else None


def required_run_plan(given: Path | None, results: Path) -> RunPlan:
    """The given plan, else that of the latest run. Raises :class:`InputError` when there is none."""
    plan = find_run_plan(given, results)
    if plan is None:
        raise InputError("no run has planned here", where=str(results / ".run"), todo=_TODO)
    return plan


def _contract_plan(
    planned: ListedContract,
    card_gb: float | None,
    candidates: Candidates,
    windows: int,
    noise: StartNoise | None,
    version: str,
) -> ContractPlan:
    forms = tuple(form.name for form in candidates.forms)
    return ContractPlan(
        id=planned.id,
        size=planned.size,
        rank=planned.rank,
        state=planned.state,
        card_gb=card_gb,
        memory_unchecked=NO_CARD_MEMORY if card_gb is None else "",
        forms=forms,
        excluded=tuple(
            RuledOut(form=out.form.name, reason=out.reason, source=out.source) for out in candidates.excluded
        ),
        windows=windows,
        noise=noise,
        engine_version=version,
        sessions=tuple(PlannedSession(form=form, window=window) for form, window in sequence(forms, windows)),
    )
