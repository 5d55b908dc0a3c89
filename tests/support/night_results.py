"""Small results folders night by night, with numbers seen by eye, for the tests of history and nights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts import store_contract
from measured import circumstances, timed_session

from anchormatrix.records.contract import Contract
from anchormatrix.records.night import Place
from anchormatrix.store import sessions as files

FORM = "tp1-usp2"


def contract(driver: str = "25.2.0") -> Contract:
    """A contract on cards 0 and 1."""
    return Contract(
        host="here", cards=(0, 1), links=(("X", "UB"), ("UB", "X")), one_domain=True, device_model="950DT",
        driver=driver, toolkit="8.3", framework="vllm-omni", framework_version="0.11", workload={"seed": 42},
        tiers={"few": 4, "anchor": 10},
    )  # fmt: skip


def write_session(
    results: Path,
    night: str,
    step_s: float = 2.0,
    *,
    of: Contract | None = None,
    form: str = FORM,
    window: int = 1,
    wobble: Sequence[float] = (0.0, 0.01, -0.01),
    clock: str = "23:00:00",
    **other: Any,
) -> Path:
    """Write contract.json, session.json and requests.csv of one session begun in the evening of a night."""
    facts = of or contract()
    folder = results / facts.id
    store_contract(results, facts, other.pop("version", 1))
    path = folder / form / f"w{window}" / "session.json"
    values_s = {
        "few": [round(step_s * (1 + w), 9) for w in wobble],
        "anchor": [round(step_s * (1 + w) + 0.5, 9) for w in wobble],
    }
    known = {
        "night": night, "started_at": f"{night}T{clock}+00:00", "finished_at": f"{night}T23:59:00+00:00",
        "duration_s": 60.0, "circumstances": circumstances(),
    }  # fmt: skip
    files.write_session(path, timed_session(form, window, values_s, **{"contract": facts.id, **known, **other}))
    return path


def place(form: str = FORM, window: int = 1, of: Contract | None = None) -> Place:
    """Where a session of the tests stands."""
    return Place((of or contract()).id, form, window)
