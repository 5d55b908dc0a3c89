"""The performance dump that SGLang writes for a request which names a file for it (0.5.23,
``multimodal_gen/runtime/utils/perf_logger.py:388``): every stage, every denoise step and the whole, in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from anchormatrix.engines.client import Told
from anchormatrix.engines.http import positive

WHOLE = "whole request"  # the stage name under which the total stands beside the server's own stages


def told_by(content: bytes) -> Told | None:
    """What a dump times; ``None`` for a file that is none or is not whole."""
    try:
        dump = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(dump, dict):
        return None
    stages: dict[str, float] = {}
    for stage in _entries(dump.get("steps")):
        name, seconds = str(stage.get("name", "")), _seconds(stage)
        if not name or seconds is None:
            return None
        stages[name] = stages.get(name, 0.0) + seconds
    steps = [_seconds(step) for step in _entries(dump.get("denoise_steps_ms"))]
    whole = positive(dump.get("total_duration_ms"))
    if not stages or whole is None or None in steps:
        return None
    return Told(stages | {WHOLE: whole / 1e3}, tuple(step for step in steps if step is not None))


def _entries(values: object) -> Iterator[dict[str, Any]]:
    """The entries of a list; anything else in it is an entry without a time."""
    for value in values if isinstance(values, list) else ():
        yield value if isinstance(value, dict) else {}


def _seconds(entry: dict[str, Any]) -> float | None:
    milliseconds = positive(entry.get("duration_ms"))
    return None if milliseconds is None else milliseconds / 1e3
