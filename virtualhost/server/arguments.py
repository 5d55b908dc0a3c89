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
from virtualhost.server.pipelines import PIPELINES, Options, pipeline_of


class LaunchError(Exception):
    """The engine refuses to start; the message is what it logs."""


@dataclass(frozen=True)
class Launch:
    """What was asked for: the form, its cards (card ids, in rank order), where to listen, what to profile.

    ``served`` is the name that answers tell and images must ask for. ``profile_step`` is the step of a request, from 0,
    that a capture holds. vllm-omni 0.30.0 calls its profiler's ``step()`` once a request, so that
    ``delay_iterations`` counts steps with ``--step-execution`` alone
    (``diffusion/worker/diffusion_worker.py:697-741``).
    """

    served: str
    host: str
    port: int
    split: Split
    cards: tuple[int, ...]
    options: Options
    profile_dir: Path | None
    profile_step: int = 0


def parse(arguments: Sequence[str], scenario: Scenario, environment: Mapping[str, str]) -> Launch:
    """Read the command line. Leaves with status 2 like argparse for an unknown flag; raises :class:`LaunchError` for a
    combination that cannot work."""
    options = _parser().parse_args(arguments)
    if not options.omni:
        raise LaunchError(f"{options.model} is a diffusion pipeline; it is served with --omni")
    _refuse_prohibited(options)
    pipeline = pipeline_of(options.model)
    if pipeline is None and not scenario.log.pipeline:
        known = ", ".join(dict.fromkeys(one.name for one in PIPELINES))
        raise LaunchError(f"no pipeline of the virtual host serves {options.model}: it has {known}")
    split = _split(options)
    world = options.num_gpus or split.world
    if world % split.world:  # diffusion/data.py:453-488
        raise LaunchError(f"WORLD size ({world}) must be divisible by non-DP parallel size ({split.world})")
    if world != split.world:  # the release makes replicas of the rest without a word
        raise LaunchError(
            f"{world} cards for degrees of {split.world}: the virtual host has no timeline for data-parallel replicas"
        )
    if pipeline and pipeline.name == "SanaVideoPipeline":
        _refuse_by_sana(split, options.text_encoder_tp_size)
    stepwise = bool(options.step_execution)
    if stepwise and not (scenario.log.per_step or (pipeline and pipeline.stepwise)):
        raise LaunchError(  # diffusion/worker/diffusion_model_runner.py:364
            "step_execution=True requires a pipeline implementing prepare_encode(), denoise_step(), step_scheduler(), "
            f"and post_decode(); {pipeline.name if pipeline else scenario.log.pipeline} does not support that contract."
        )
    if stepwise and options.cache_backend != "none":  # diffusion_model_runner.py:1335
        raise LaunchError("Step mode does not support cache_backend yet.")
    directory, delay = _profile(options.profiler_config)
    backend = options.distributed_executor_backend or ("uni" if world == 1 else "mp")
    if backend == "uni" and world > 1:  # diffusion/executor/uniproc_executor.py:49
        raise LaunchError(
            f"UniProcDiffusionExecutor supports a single GPU only, got num_gpus={world}. "
            'Use distributed_executor_backend="mp" for multi-GPU deployments.'
        )
    return Launch(
        options.served_model_name or options.model,
        options.host,
        options.port,
        split,
        visible_cards(scenario, environment, world),
        Options(
            model=options.model,
            stage_lines=options.enable_diffusion_pipeline_profiler,
            stepwise=stepwise,
            inline=backend == "uni",
            eager=options.enforce_eager,
            cache="" if options.cache_backend == "none" else options.cache_backend,
            profile_dir=str(directory or ""),
            patches=options.vae_patch_parallel_size,
        ),
        directory,
        delay if stepwise else 0,
    )


_OFFLOAD_FLAGS = ("cpu-offload", "layerwise-offload", "distributed-layerwise-offload")
# entrypoints/cli/serve.py:244-262
_PROHIBITED = (
    "--data-parallel-size",
    "--data-parallel-size-local",
    "--data-parallel-address",
    "--data-parallel-rpc-port",
    "--data-parallel-start-rank",
    "--data-parallel-backend",
)
_CACHES = ("none", "cache_dit", "tea_cache", "mag_cache", "sea_cache", "step_cache")
# Flags of entrypoints/cli/serve.py and of vLLM's own parser that change nothing here, by how they are written
_SWITCHES = (
    "--trust-remote-code", "--vae-use-slicing", "--vae-use-tiling", "--enable-cache-dit-summary", "--use-hsdp",
    "--disable-multithread-weight-load", "--enable-broadcast-weight-load", "--fa-deterministic", "--force-cutlass-fp8",
    "--dlo-use-allgather", "--dlo-no-use-allgather", "--diffusion-compile-dynamic", "--no-diffusion-compile-dynamic",
    "--ulysses-a2a-permute", "--no-ulysses-a2a-permute", "--disable-uvicorn-access-log", "--no-guardrails",
)  # fmt: skip
_TEXTS = (
    "--dtype", "--api-key", "--revision", "--download-dir", "--uvicorn-log-level", "--model-class-name",
    "--cache-config", "--diffusion-attention-backend", "--diffusion-attention-config", "--quantization",
    "--diffusion-quantization-config", "--diffusion-kv-cache-dtype", "--diffusion-kv-cache-skip-steps",
    "--diffusion-kv-cache-skip-layers", "--default-sampling-params", "--video-output-transport",
    "--diffusers-load-kwargs", "--diffusers-call-kwargs", "--custom-pipeline-args",
)  # fmt: skip
_NUMBERS = (
    "--flow-shift", "--boundary-ratio", "--stage-init-timeout", "--init-timeout", "--request-batch-max-wait-ms",
    "--dlo-host-registration-limit-gib",
)  # fmt: skip
_COUNTS = (
    "--seed", "--max-num-seqs", "--num-weight-load-threads", "--dlo-resident-layers", "--fastvideo-vsa-topk",
    "--max-generated-image-size", "--hsdp-shard-size", "--hsdp-replicate-size",
)  # fmt: skip
_CHOICES = {
    "--ulysses-mode": ("strict", "advanced_uaa"),
    "--vae-fast-path": ("lossless", "off", "channels_last"),
    "--vae-parallel-mode": ("tile", "spatial_shard_height", "spatial_shard_width"),
    "--diffusion-compile-granularity": ("regional", "full"),
}


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
        ("--usp", "--ulysses-degree"),
        ("--ring", "--ring-degree"),
        ("--allgather-degree",),
        ("--cfg-parallel-size",),
        ("--pipeline-parallel-size", "-pp"),
        ("--text-encoder-tp-size",),
        ("--vae-patch-parallel-size",),
        ("--api-server-count",),
        ("--mask-chunks",),  # a plug-in's switch: the release has none
    ):
        add(*names, type=_positive, default=1)
    for name in (
        "--enable-diffusion-pipeline-profiler",
        *(f"--enable-{name}" for name in _OFFLOAD_FLAGS),
        "--enforce-eager",
        "--step-execution",
        "--enable-expert-parallel",
        *_SWITCHES,
    ):
        add(name, action="store_true")
    for name in ("--profiler-config", "--served-model-name", *_PROHIBITED, *_TEXTS):
        add(name)
    for name, kind in (*((name, float) for name in _NUMBERS), *((name, int) for name in _COUNTS)):
        add(name, type=kind)
    for name, choices in _CHOICES.items():
        add(name, choices=choices, default=choices[0])
    add("--cache-backend", default="none")
    add("--distributed-executor-backend", choices=("mp", "uni"))
    add("--lora-path", nargs="+")
    return parser


def _split(options: argparse.Namespace) -> Split:
    offloads = [name for name in _OFFLOAD_FLAGS if getattr(options, f"enable_{name}".replace("-", "_"))]
    if len(offloads) > 1:
        raise LaunchError(f"{' and '.join(offloads)} exclude each other")
    return Split(
        tp=options.tensor_parallel_size,
        usp=options.usp,
        ring=options.ring,
        ag=options.allgather_degree,
        cfg=options.cfg_parallel_size,
        pp=options.pipeline_parallel_size,
        offload=offloads[0] if offloads else "",
        mask_chunks=options.mask_chunks,
        pad_heads=options.ulysses_mode == "advanced_uaa",
    )


def _refuse_prohibited(options: argparse.Namespace) -> None:
    """What ``--omni`` does not take (``entrypoints/cli/serve.py:244-309``, ``diffusion/cache/selector.py``)."""
    given = [flag for flag in _PROHIBITED if getattr(options, flag[2:].replace("-", "_")) is not None]
    given += ["--enable-expert-parallel"] if options.enable_expert_parallel else []
    if given:
        raise LaunchError(f"The following CLI args are not supported under --omni: {', '.join(sorted(given))}.")
    if options.api_server_count > 1:
        raise LaunchError("--api-server-count > 1 is not supported for diffusion models")
    if options.cache_backend not in _CACHES:
        supported = ", ".join(f"'{name}'" for name in _CACHES[1:])
        raise LaunchError(f"Unsupported cache backend: {options.cache_backend}. Supported: {supported}")


def _refuse_by_sana(split: Split, encoders: int) -> None:
    """What one pipeline takes no part in (``diffusion/models/sana_video/transformer_sana_video.py:59-75``)."""
    if split.ring > 1:
        raise LaunchError(
            "SANA-Video does not support ring sequence parallel: its linear attention has no log-sum-exp state to "
            "merge across ring stages. Use --usp for sequence parallel."
        )
    if split.ag > 1:
        raise LaunchError("SANA-Video does not support AllGather-KV sequence parallel. Use --usp instead.")
    if split.pp > 1:
        raise LaunchError("SANA-Video does not support pipeline parallel. Set --pipeline-parallel-size to 1.")
    if encoders > 1:
        raise LaunchError("SANA-Video does not support text encoder tensor parallel. Set text_encoder_tp_size to 1.")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


# vllm/config/profiler.py: ProfilerConfig, which refuses any other key
_PROFILER_KEYS = {
    "profiler", "torch_profiler_dir", "torch_profiler_with_stack", "torch_profiler_with_flops",
    "torch_profiler_use_gzip", "torch_profiler_dump_cuda_time_total", "torch_profiler_record_shapes",
    "torch_profiler_with_memory", "capture_torch_profiler", "detailed_trace_annotation", "ignore_frontend",
    "delay_iterations", "max_iterations", "warmup_iterations", "active_iterations", "wait_iterations",
}  # fmt: skip


def _profile(config: str | None) -> tuple[Path | None, int]:
    """Where captures go (``None``: no profiler) and how many iterations are skipped first."""
    if config is None:
        return None, 0
    try:
        stored = json.loads(config)
        unknown = sorted(set(stored) - _PROFILER_KEYS)
        directory, delay = str(stored.get("torch_profiler_dir", "")), int(stored.get("delay_iterations", 0))
    except (ValueError, TypeError, AttributeError) as error:
        raise LaunchError(f"--profiler-config {config!r}: a JSON object is needed, as torch_profiler_dir") from error
    if unknown:
        raise LaunchError(f"--profiler-config: unexpected keyword arguments {', '.join(unknown)}")
    if directory and stored.get("profiler") != "torch":
        raise LaunchError("torch_profiler_dir is only applicable when profiler is set to 'torch'")
    if stored.get("profiler") == "torch" and not directory:
        raise LaunchError("torch_profiler_dir must be set when profiler is 'torch'")
    return Path(directory) if directory else None, delay


def visible_cards(scenario: Scenario, environment: Mapping[str, str], world: int) -> tuple[int, ...]:
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
