"""The command line ``torchrun … -m lightx2v.server …`` and the configuration file it names.

Of LightX2V f8aee98: its parser takes what it knows and reads the rest in pairs (``server/__main__.py:18-27``); the file
goes over the arguments (``utils/set_config.py:83-87``), and the product of its degrees must be the number of ranks
(``:411-421``). Of the runners, the one of Qwen-Image is here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtualhost.host.scenario import Scenario
from virtualhost.host.split import Split
from virtualhost.server.arguments import Launch, LaunchError, visible_cards
from virtualhost.server.pipelines import Options

# utils/set_config.py:14-33
_DEFAULTS: Mapping[str, Any] = {
    "do_mm_calib": False,
    "cpu_offload": False,
    "feature_caching": "NoCaching",
    "use_prompt_enhancer": False,
    "parallel": False,
    "seq_parallel": False,
    "cfg_parallel": False,
    "enable_cfg": False,
}
_OFFLOADS = {"block": "layerwise-offload", "model": "cpu-offload"}


@dataclass(frozen=True)
class Configured:
    """A launch, the resolved configuration, and whether the lines with times are written."""

    launch: Launch
    values: Mapping[str, Any]
    timed: bool


def parse(arguments: Sequence[str], scenario: Scenario, environment: Mapping[str, str]) -> Configured:
    """Read the command line. Leaves with status 2 like argparse where torchrun or the server would; raises
    :class:`LaunchError` for a configuration that cannot work."""
    outer = argparse.ArgumentParser(prog="torchrun")
    outer.add_argument("--nproc-per-node", "--nproc_per_node", type=int, default=1)
    outer.add_argument("--standalone", action="store_true")
    outer.add_argument("--local-addr", "--local_addr")
    outer.add_argument("-m", "--module", action="store_true")
    outer.add_argument("training_script")
    outer.add_argument("training_script_args", nargs=argparse.REMAINDER)
    options = outer.parse_args(arguments)
    if not options.module or options.training_script != "lightx2v.server":
        raise LaunchError(f"the virtual host runs -m lightx2v.server, not {options.training_script}")
    inner = argparse.ArgumentParser(description="LightX2V Server", prog="__main__.py")
    for name in ("--model_path", "--model_cls"):
        inner.add_argument(name, required=True)
    inner.add_argument("--lora_dir")
    inner.add_argument("--warmup", action="store_true")
    inner.add_argument("--host", default="0.0.0.0")
    inner.add_argument("--port", type=int, default=8000)
    inner.add_argument("--max_queue_size", type=int, default=10)
    known, unknown = inner.parse_known_args(options.training_script_args)
    values = {**_DEFAULTS, **vars(known), **dict(_pairs(unknown))}
    values |= _file(str(values["config_json"])) if "config_json" in values else {}
    if values["model_cls"] != "qwen_image":
        raise LaunchError(f"the virtual host has LightX2V's runner of qwen_image, not of {values['model_cls']}")
    split = _split(values, options.nproc_per_node)
    values |= {"seq_parallel": split.sequence_degree > 1, "tensor_parallel": False}
    values |= {"cfg_parallel": bool(values["enable_cfg"]) and split.cfg > 1}
    launch = Launch(
        str(values["model_cls"]),
        known.host,
        known.port,
        split,
        visible_cards(scenario, environment, split.world),
        Options(model="Qwen-Image"),
        None,
    )
    return Configured(launch, values, int(environment.get("PROFILING_DEBUG_LEVEL", "0")) >= 1)


def _pairs(unknown: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for at in range(0, len(unknown) - 1, 2):
        if unknown[at].startswith("--") and not unknown[at + 1].startswith("--"):
            found.append((unknown[at][2:], unknown[at + 1]))
    return found


def _file(path: str) -> dict[str, Any]:
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(str(error)) from error
    if not isinstance(values, dict):
        raise LaunchError(f"'{type(values).__name__}' object is not a mapping")
    return values


def _split(values: Mapping[str, Any], world: int) -> Split:
    parallel = values["parallel"] or {}
    tensor, guidance, sequence = (int(parallel.get(f"{name}_p_size", 1)) for name in ("tensor", "cfg", "seq"))
    if world > 1 and not parallel:
        raise LaunchError("the virtual host has no timeline for ranks that all do the same")
    if tensor * guidance * sequence != world:
        raise LaunchError(
            "Parallel sizes must match the distributed world size: "
            f"tensor_p_size ({tensor}) * cfg_p_size ({guidance}) * seq_p_size ({sequence}) != world_size ({world})."
        )
    if tensor > 1:
        raise LaunchError("Qwen-Image does not read tensor_p_size, and its ranks would all do the same")
    kind = parallel.get("seq_p_attn_type", "ulysses")
    if sequence > 1 and kind != "ulysses":  # common/ops/attn/ring_attn.py:65
        raise LaunchError(
            "RingAttn legacy apply only supports image-only self-attention with img_first=True and no auxiliary region."
        )
    offload = _OFFLOADS[str(values.get("offload_granularity", "block"))] if values["cpu_offload"] else ""
    return Split(usp=sequence, cfg=guidance, offload=offload)
