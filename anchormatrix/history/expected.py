"""The speed of a group by history, for those who must judge whether it still is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.history.query import median_step
from anchormatrix.history.store import read_history


def recorded_steps(file: Path | str) -> Callable[[str, str], float | None]:
    """How fast a form's few-step tier was under a contract, by history: what a smoke's expectation may rest on."""

    def step_s(contract: str, form: str) -> float | None:
        try:
            with read_history(file) as history:
                return median_step(history, contract, form) if history else None
        except InputError:
            return None  # what is wrong with a history is told where it is written

    return step_s
