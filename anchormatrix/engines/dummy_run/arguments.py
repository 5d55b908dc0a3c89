"""The command line of the dummy run: the flags that a vllm-omni launch uses, and nothing that is silently ignored."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import NoReturn

from anchormatrix.engines.dummy_run.model.models import MODELS, ModelSpec

_OFFLOADS = ("cpu-offload", "layerwise-offload", "distributed-layerwise-offload")


@dataclass(frozen=True)
class ProfilerSettings:
    """Where traces go and which denoise steps of the profiled requests are captured.

    ``delay`` steps are skipped first (the first step after a start carries one-off costs), then ``steps`` are captured;
    0 steps mean all of them.
    """

    directory: str
    delay: int = 1
    steps: int = 1


@dataclass(frozen=True)
class ServeOptions:
    """A checked launch: the model, where to listen, the degrees of the form, and the profiler."""

    model: ModelSpec
    host: str
    port: int
    tp: int
    usp: int
    ring: int
    cfg: int
    seed: int
    device: str
    dtype: str
    stage_log: bool
    profiler: ProfilerSettings | None

    @property
    def world(self) -> int:
        """Number of ranks: the product of the degrees."""
        return self.tp * self.usp * self.ring * self.cfg


class UsageError(Exception):
    """The command line asks for something this server does not have; the message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``serve``; its ``--help`` lists the models."""
    parser = _Parser(
        prog="dummy_run serve",
        description="Serve a diffusion transformer with random weights, split over ranks, over the serving protocol.",
        epilog="Models: " + ", ".join(MODELS),
        allow_abbrev=False,
    )
    parser.add_argument("model", help="name of a small configuration")
    parser.add_argument("--omni", action="store_true", help="accepted as in a vllm-omni launch: always on here")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind; loopback unless you know better")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--num-gpus", type=int, help="number of ranks; must equal the product of the degrees")
    for flags, text in (
        (("--tensor-parallel-size",), "tensor parallel degree"),
        (("--usp", "--ulysses-degree"), "Ulysses degree"),
        (("--ring", "--ring-degree"), "ring attention degree"),
        (("--allgather-degree",), "all-gather-KV degree (not in this engine: above 1 is refused)"),
        (("--cfg-parallel-size",), "CFG parallel degree: 1 or 2"),
        (("--pipeline-parallel-size",), "pipeline degree (not in this engine: above 1 is refused)"),
    ):
        parser.add_argument(*flags, type=_degree, default=1, metavar="N", help=text)
    parser.add_argument("--distributed-executor-backend", choices=("mp",), help="accepted: ranks are always processes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default 0)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "npu"), default="auto")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--enable-diffusion-pipeline-profiler", action="store_true", help="log the stage times")
    parser.add_argument("--profiler-config", metavar="JSON", help='such as {"torch_profiler_dir": "/tmp/traces"}')
    for name in _OFFLOADS:
        parser.add_argument(f"--enable-{name}", action="store_true", help="not in this engine: refused")
    return parser


def parse_serve(argv: list[str]) -> ServeOptions:
    """Check a launch. Raises :class:`UsageError` naming the flag, what was given and what is allowed."""
    values = build_parser().parse_args(argv)
    spec = MODELS.get(values.model)
    if spec is None:
        raise UsageError(f"model {values.model!r} is not a configuration of the dummy run; one of {', '.join(MODELS)}")
    _refuse_missing(values, spec)
    options = ServeOptions(
        model=spec,
        host=values.host,
        port=values.port,
        tp=values.tensor_parallel_size,
        usp=values.usp,
        ring=values.ring,
        cfg=values.cfg_parallel_size,
        seed=values.seed,
        device=values.device,
        dtype=values.dtype,
        stage_log=values.enable_diffusion_pipeline_profiler,
        profiler=_profiler(values.profiler_config),
    )
    if values.num_gpus is not None and values.num_gpus != options.world:
        raise UsageError(f"--num-gpus {values.num_gpus}: the degrees multiply to {options.world}")
    if not 0 < values.port < 65536:
        raise UsageError(f"--port {values.port}: not a port number")
    return options


def _refuse_missing(values: argparse.Namespace, spec: ModelSpec) -> None:
    if values.allgather_degree > 1:
        raise UsageError(f"--allgather-degree {values.allgather_degree}: diffusers has no all-gather-KV attention")
    if values.pipeline_parallel_size > 1:
        raise UsageError(f"--pipeline-parallel-size {values.pipeline_parallel_size}: diffusers has no pipeline split")
    if values.cfg_parallel_size > spec.branches:
        raise UsageError(
            f"--cfg-parallel-size {values.cfg_parallel_size}: {spec.pipeline} has {spec.branches} guidance branch(es)"
        )
    for name in _OFFLOADS:
        if getattr(values, f"enable_{name.replace('-', '_')}"):
            raise UsageError(f"--enable-{name}: the dummy run keeps its small model on the card")


def _profiler(text: str | None) -> ProfilerSettings | None:
    if text is None:
        return None
    try:
        values = json.loads(text)
        directory = values["torch_profiler_dir"]
        delay, steps = int(values.get("delay_iterations", 1)), int(values.get("max_iterations", 1))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f"--profiler-config {text!r}: not JSON with a torch_profiler_dir and whole-numbered iterations ({error!r})"
        ) from None
    if not isinstance(directory, str) or not directory or delay < 0 or steps < 0:
        raise UsageError(f"--profiler-config {text!r}: torch_profiler_dir is empty or a count is negative")
    return ProfilerSettings(directory, delay, steps)


def _degree(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{text} is below 1")
    return value
