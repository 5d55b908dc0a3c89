"""The text of small serving logs."""

from __future__ import annotations

STAGE = "INFO 10-09 08:38:05 [p.py:29] [DiffusionPipelineProfiler] P.diffuse took"


def sampling(steps: int) -> str:
    return f"INFO 10-09 08:38:05 [s.py:1] Video sampling params: steps={steps} guidance=5.0 seed=42\n"


def log(step_s: float, ranks: int, anchor: float = 1.0, sp_size: int | None = None) -> str:
    groups = f"sp_size={sp_size or ranks} ulysses_degree={sp_size or ranks} ring_degree=1"
    text = "".join(f"(DiffusionWorker_SP{r} pid={r}) INFO 10-09 08:38:05 [p.py:1] {groups}\n" for r in range(ranks))
    for number, steps in enumerate((4, 4, 4, 10, 4, 10, 4, 10)):
        took = step_s * steps * (0.87 if number == 0 else anchor if steps == 10 else 1.0)
        text += sampling(steps) + "".join(
            f"(DiffusionWorker_SP{r} pid={r}) {STAGE} {took * (1 + r * 1e-5):.6f}s\n" for r in range(ranks)
        )
    return text
