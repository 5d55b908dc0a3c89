"""Results folders of whole runs, with the contracts and sessions that a comparison of two runs reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contracts import contract_on
from measured import request_row, session_record

from anchormatrix.records.contract import ContractList, GroupCondition, ListedContract
from anchormatrix.records.requests import Basis, RequestRow, Witness
from anchormatrix.store.codec import read_record, write_record
from anchormatrix.store.sessions import TimedSession, write_session

WORKLOAD = {
    "model": "Wan-AI/Wan2.2-T2V-A14B-Diffusers", "endpoint": "video", "prompt": "A lighthouse", "negative_prompt": "",
    "seed": 42, "width": 832, "height": 480, "frames": 81, "fps": 16, "guidance_scale": 5, "flow_shift": 5,
    "extra_params": {}, "engine_args": [], "engine_env": {},
}  # fmt: skip

Steps = Mapping[str, Sequence[Sequence[float]]]
"""Step times of the repeats in seconds, by form and server start."""


def write_run(
    root: Path,
    steps: Steps,
    *,
    tiers: Mapping[str, int] | None = None,
    basis: Basis | None = Basis.DIFFUSE,
    day: int = 1,
    workload: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Path:
    """A run on two cards whose anchor repeats are ``steps``; ``facts`` are the contract's, ``workload`` is laid over
    the usual one. ``basis`` is what was timed; None: the files do not tell."""
    asked = {"few": 4, "anchor": 10, **(tiers or {})}
    known = {"framework": "vllm-omni", "framework_version": "0.30.0", "tiers": asked, **facts}
    contract = contract_on((0, 1), workload={**WORKLOAD, **(workload or {})}, **known)
    listed = ListedContract(**contract.facts, version=1, rank=0, reason="first", state=GroupCondition.FIT)
    write_record(root / "contracts.json", ContractList(contracts=(listed,)))
    for form, starts in steps.items():
        for window, values_s in enumerate(starts, start=1):
            rows = _rows(values_s, basis, asked["anchor"])
            session = session_record(form, window, contract=contract.id, started_at=f"2026-12-0{day}T0{window}:00:00")
            write_session(session_path(root, form, window), TimedSession(session, rows))
    return root


def session_path(root: Path, form: str, window: int) -> Path:
    """The ``session.json`` of a form's start in a run of one contract."""
    listed = read_record(root / "contracts.json", ContractList)
    return root / listed.contracts[0].id / form / f"w{window}" / "session.json"


def _rows(values_s: Sequence[float], basis: Basis | None, steps: int) -> tuple[RequestRow, ...]:
    told = {"basis": basis, "witness": Witness.LOG if basis else None, "steps": steps, "iterations": steps}
    return tuple(request_row(number, "anchor", step_s, **told) for number, step_s in enumerate(values_s, start=1))
