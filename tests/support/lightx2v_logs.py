"""Logs of a LightX2V server by its format strings (f8aee98); each line says where in ``lightx2v/`` it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

TASK = "LA8H-0NL0-EZZ5-0RT6-WTPR"
ULYSSES_2 = (
    "{'cpu_offload': False, 'patch_size': 2, 'feature_caching': 'NoCaching', 'parallel': {'seq_p_size': 2, "
    "'seq_p_attn_type': 'ulysses', 'cfg_p_size': 1}, 'seq_parallel': True, 'cfg_parallel': False, 'enable_cfg': False, "
    "'device_mesh': DeviceMesh((cfg_p=1, seq_p=2), 'cpu', stride=((), 1)), 'tensor_parallel': False}"
)
ALONE = (
    "{'cpu_offload': False, 'feature_caching': 'NoCaching', 'parallel': False, 'seq_parallel': False, "
    "'cfg_parallel': False, 'enable_cfg': False}"
)


def line(where: str, text: str, second: float = 0.0, level: str = "INFO") -> str:
    """A line as loguru writes it by default."""
    return f"2026-12-03 08:08:{10 + second:06.3f} | {level:<8} | lightx2v.{where} - {text}\n"


def span(rank: int | None, name: str, seconds: float, at: float = 0.0) -> str:
    """A timed span (utils/profiler.py:165)."""
    who = "Single GPU" if rank is None else f"Rank {rank}"
    text = f"[Profile] {who} - Level1_Log {name} cost {seconds:.6f} seconds"
    return line("utils.profiler:__exit__:165", text, at)


def start(world: int = 2, config: str = ULYSSES_2) -> str:
    """A start: rank 0's configuration (server/services/inference/worker.py:55) and every rank's end (:58)."""
    where = "server.services.inference.worker:init"
    done = (line(f"{where}:58", f"Rank {rank}/{world - 1} initialization completed") for rank in range(world))
    return line(f"{where}:55", f"Config:\n {config}") + "".join(done)


def steps(rank: int | None, seconds: Sequence[float]) -> Iterator[str]:
    """The steps of one rank, each a thousandth of a second besides what is given (z_image_runner.py:265-274)."""
    for number, main_s in enumerate(seconds, 1):
        yield line("models.runners.z_image.z_image_runner:run:265", f"==> step_index: {number} / {len(seconds)}")
        yield span(rank, "step_pre", 0.0006)
        yield span(rank, "🚀 infer_main", main_s)
        yield span(rank, "step_post", 0.0004)


def task(
    ranks: Sequence[Sequence[float]], *, asked: int | None = None, alone: bool = False, took_s: float = 9.0,
    prompt: str = "a lighthouse", end: str = "completed successfully",
) -> str:  # fmt: skip
    """A task whose ranks took these seconds for their steps (server/api/server.py:98 to :148)."""
    wanted = {"infer_steps": asked or len(ranks[0]), "prompt": prompt, "task": "t2i"}
    text = line("server.api.server:_task_processing_loop:98", f"Processing task {TASK}")
    for rank, seconds in enumerate(ranks):
        name = None if alone else rank
        text += line("models.runners.default_runner:set_config:223", f"modify config: {wanted}")
        text += span(name, "Run Text Encoder", 0.5) + "".join(steps(name, seconds))
        text += span(name, "Run VAE Decoder", 0.25) + span(name, "RUN pipeline", sum(seconds) + 1.5)
    return text + line("server.api.server:_process_single_task:148", f"Task {TASK} {end}", took_s)
