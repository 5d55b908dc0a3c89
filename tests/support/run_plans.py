"""Plans of runs for tests that have no host to plan for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anchormatrix.planning.adaptive import sequence
from anchormatrix.planning.run_plan import write_run_plan
from anchormatrix.records.contract import Contract
from anchormatrix.records.plan import ContractPlan, PlannedSession, RunPlan


def contract_plan(
    contract: Contract, forms: Sequence[str], *, windows: int = 2, card_gb: float | None = None
) -> ContractPlan:
    """The plan of a contract under which the given forms are measured."""
    sessions = tuple(PlannedSession(form=form, window=window) for form, window in sequence(forms, windows))
    return ContractPlan(
        id=contract.id,
        size=contract.size,
        rank=0,
        state="fit",
        card_gb=card_gb,
        forms=tuple(forms),
        excluded=(),
        windows=windows,
        sessions=sessions,
    )


def store_plan(results: Path, *contracts: ContractPlan) -> Path:
    """Leave a plan where the latest run would have."""
    return write_run_plan(RunPlan(contracts=contracts), results)
