"""The text of small serving logs."""

from __future__ import annotations

from collections.abc import Sequence

STAGE = "INFO 10-09 08:38:05 [p.py:29] [DiffusionPipelineProfiler] P.diffuse took"


def sampling(steps: int) -> str:
    return f"INFO 10-09 08:38:05 [s.py:1] Video sampling params: steps={steps} guidance=5.0 seed=42\n"


WARM_UP = (4, 4)
PAIRS = (4, 10, 4, 10, 4, 10)


def log(step_s: float, ranks: int, anchor: float = 1.0, sp_size: int | None = None) -> str:
    """A session of two warm-ups, of which the first is fast, and three pairs; ``anchor`` scales the anchor's steps."""
    factors = [0.87, 1.0, *(anchor if steps == 10 else 1.0 for steps in PAIRS)]
    return log_of(
        [(steps, step_s * factor) for steps, factor in zip(WARM_UP + PAIRS, factors, strict=True)], ranks, sp_size
    )


def log_of(requests: Sequence[tuple[int, float]], ranks: int, sp_size: int | None = None) -> str:
    """The log of requests with these steps and seconds per step."""
    groups = f"sp_size={sp_size or ranks} ulysses_degree={sp_size or ranks} ring_degree=1"
    text = "".join(f"(DiffusionWorker_SP{r} pid={r}) INFO 10-09 08:38:05 [p.py:1] {groups}\n" for r in range(ranks))
    for steps, step_s in requests:
        text += sampling(steps) + "".join(
            f"(DiffusionWorker_SP{r} pid={r}) {STAGE} {steps * step_s * (1 + r * 1e-5):.6f}s\n" for r in range(ranks)
        )
    return text
