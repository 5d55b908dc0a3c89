"""The command line of ``vllm serve MODEL --omni``: flags, degrees, and the checks the engine makes before it starts."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split


class LaunchError(Exception):
    """The engine refuses to start; the message is what it logs."""


@dataclass(frozen=True)
class Launch:
    """What was asked for: the form, its cards (card ids, in rank order), where to listen, what to profile.

    ``profile_step`` is the step of a request, from 0, that a capture holds. vllm-omni 0.30.0 calls its profiler's
    ``step()`` once a request, so that ``delay_iterations`` counts steps with ``--step-execution`` alone
    (``diffusion/worker/diffusion_worker.py:697-741``).
    """

    model: str
    host: str
    port: int
    split: Split
    cards: tuple[int, ...]
    stage_lines: bool
    profile_dir: Path | None
    profile_step: int = 0


def parse(arguments: Sequence[str], scenario: Scenario, environment: Mapping[str, str]) -> Launch:
    """Read the command line. Leaves with status 2 like argparse for an unknown flag; raises :class:`LaunchError` for a
    combination that cannot work."""
    options = _parser().parse_args(arguments)
    if not options.omni:
        raise LaunchError(f"{options.model} is a diffusion pipeline; it is served with --omni")
    offloads = [name for name in _OFFLOAD_FLAGS if getattr(options, f"enable_{name}".replace("-", "_"))]
    if len(offloads) > 1:
        raise LaunchError(f"{' and '.join(offloads)} exclude each other")
    split = Split(
        tp=options.tensor_parallel_size,
        usp=options.ulysses_degree,
        ring=options.ring_degree,
        ag=options.allgather_degree,
        cfg=options.cfg_parallel_size,
        pp=options.pipeline_parallel_size,
        offload=offloads[0] if offloads else "",
        mask_chunks=options.mask_chunks,
        pad_heads=options.ulysses_mode == "advanced_uaa",
    )
    world = options.num_gpus or split.world
    if world != split.world:
        raise LaunchError(
            f"world size {world} (--num-gpus) does not match the product of the parallel degrees {split.world}"
        )
    for flag in ("text_encoder_tp_size", "vae_patch_parallel_size"):
        size = getattr(options, flag)
        if size is not None and size not in (1, world):
            raise LaunchError(f"{flag} {size} must be 1 or the world size {world}")
    if options.step_execution and not scenario.log.per_step:  # diffusion_model_runner.py:364
        raise LaunchError(f"{options.model} does not implement step execution (denoise_step, step_scheduler)")
    directory, delay = _profile(options.profiler_config)
    cards = _visible_cards(scenario, environment, world)
    return Launch(
        options.model,
        options.host,
        options.port,
        split,
        cards,
        options.enable_diffusion_pipeline_profiler,
        directory,
        delay if options.step_execution else 0,
    )


_OFFLOAD_FLAGS = ("cpu-offload", "layerwise-offload", "distributed-layerwise-offload")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    add = parser.add_argument
    add("model")
    add("--omni", action="store_true")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8091)
    add("--num-gpus", type=_positive)
    for names in (
        ("--tensor-parallel-size", "-tp"),
        ("--ulysses-degree", "--usp"),
        ("--ring-degree", "--ring"),
        ("--allgather-degree",),
        ("--cfg-parallel-size",),
        ("--pipeline-parallel-size", "-pp"),
        ("--mask-chunks",),
    ):
        add(*names, type=_positive, default=1)
    add("--ulysses-mode", choices=("strict", "advanced_uaa"), default="strict")
    add("--distributed-executor-backend", choices=("mp", "uni"))
    for name in ("--text-encoder-tp-size", "--vae-patch-parallel-size"):
        add(name, type=_positive)
    for name in (
        "--enable-diffusion-pipeline-profiler",
        *(f"--enable-{name}" for name in _OFFLOAD_FLAGS),
        "--enforce-eager",
        "--step-execution",
        "--trust-remote-code",
        "--vae-use-slicing",
        "--vae-use-tiling",
    ):
        add(name, action="store_true")
    for name in ("--profiler-config", "--served-model-name", "--dtype", "--api-key"):
        add(name)
    for name in ("--flow-shift", "--boundary-ratio", "--stage-init-timeout", "--init-timeout"):
        add(name, type=float)
    add("--seed", type=int)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _profile(config: str | None) -> tuple[Path | None, int]:
    """Where captures go, and iterations to skip."""
    if config is None:
        return None, 0
    try:
        stored = json.loads(config)
        directory, delay = stored["torch_profiler_dir"], int(stored.get("delay_iterations", 0))
    except (ValueError, TypeError, KeyError) as error:
        raise LaunchError(f"--profiler-config {config!r}: a JSON object with torch_profiler_dir is needed") from error
    return Path(directory) if directory else None, delay


def _visible_cards(scenario: Scenario, environment: Mapping[str, str], world: int) -> tuple[int, ...]:
    """The cards of the ranks. The variable holds logic ids: positions among the cards this host shows."""
    ids = scenario.cards.ids
    text = environment.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None:
        chosen = list(range(len(ids)))[:world]
    else:
        try:
            chosen = [int(part) for part in text.split(",")]
        except ValueError as error:
            raise LaunchError(f"ASCEND_RT_VISIBLE_DEVICES={text!r} is not a list of device ids") from error
    unknown = [logic for logic in chosen if not 0 <= logic < len(ids)]
    if unknown or len(set(chosen)) != len(chosen):
        raise LaunchError(
            f"ASCEND_RT_VISIBLE_DEVICES={text}: device {unknown or chosen} does not exist or is given twice"
        )
    if len(chosen) != world:
        raise LaunchError(f"world size {world} needs as many devices; ASCEND_RT_VISIBLE_DEVICES shows {len(chosen)}")
    return tuple(ids[logic] for logic in chosen)


def launch_from_environment(arguments: Sequence[str], scenario: Scenario) -> Launch:
    """Read the command line of this process."""
    return parse(arguments, scenario, os.environ)
