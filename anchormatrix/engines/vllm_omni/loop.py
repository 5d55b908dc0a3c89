"""The denoise loop's time of each rank: its own stage, or what of the whole is in no other stage.

Many pipelines have no ``diffuse`` method, so none is timed (0.30.0: FLUX.2, Z-Image, HunyuanVideo 1.5, LTX-2 and more);
``forward`` is timed always. What it does beside its stages (latents, the scheduler's set-up, the last touches to the
picture) is then counted as the loop's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.engines.vllm_omni.segments import RawLog
from anchormatrix.engines.vllm_omni.stages import is_decode, is_diffuse, is_encode, is_forward

CLOCK_PCT = 2.0  # a clock of whole seconds times a loop when it is at least this sure of it


def has_own_stage(raw: RawLog) -> bool:
    """Whether this server's pipeline times its denoise loop."""
    return any(is_diffuse(line.name) for segment in (raw.early, *raw.segments) for line in segment.stages)


def remainder(stages: Mapping[str, Sequence[float]]) -> float | None:
    """Seconds of one rank's ``forward`` without its encoders and decoders; ``None`` where no such stage is told."""
    whole = [seconds for name, times in stages.items() if is_forward(name) for seconds in times]
    beside = {name: sum(times) for name, times in stages.items() if is_encode(name) or is_decode(name)}
    if len(whole) != 1 or not beside:
        return None
    outer = [name for name in beside if not any(name.startswith(f"{other}.") for other in beside)]
    left = whole[0] - sum(beside[name] for name in outer)
    return left if left > 0 else None
