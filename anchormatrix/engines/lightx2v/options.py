"""The configuration file of a LightX2V server: what the form and the workload say, and the user's own entries.

The server reads it with ``--config_json`` into one flat table (f8aee98, ``lightx2v/utils/set_config.py:83``). Degrees
stand in its section ``parallel`` (``:411``), whose product must be the number of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anchormatrix.errors import ConfigError
from anchormatrix.records.form import Form
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.values import Endpoint

FILE = "lightx2v.json"
_LARGEST, _SMALLEST = 1664, 256  # a picture beyond these is silently another size (z_image_runner.py:293)
_OF_FORMS = ("cpu_offload", "offload_granularity")
_OF_DEGREES = ("tensor_p_size", "seq_p_size", "cfg_p_size", "seq_p_attn_type")
_OF_THE_WORKLOAD = (
    "infer_steps",
    "enable_cfg",
    "sample_guide_scale",
    "sample_shift",
    "target_height",
    "target_width",
    "target_video_length",
    "fps",
)
_UNEVEN = {
    "feature_caching": "steps that reuse others",
    "changing_resolution": "steps of several sizes",
    "lazy_load": "weights are loaded in every request",
    "unload_modules": "weights are loaded in every request",
    "disagg_mode": "the stages run in several servers",
}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse entries that a form or the workload says, and those that make steps unequal.

    Raises :class:`ConfigError` that names the entry and what to do.
    """
    if not isinstance(options.get("model_cls"), str) or not options["model_cls"]:
        raise ConfigError("LightX2V must be told the class of its model", where="engine.options.model_cls")
    parallel = options.get("parallel", {})
    if not isinstance(parallel, Mapping):
        raise ConfigError("not a section", where="engine.options.parallel", expected="entries such as seq_p_fp8_comm")
    said_elsewhere = {
        "the form": [*(key for key in _OF_FORMS if key in options), *(key for key in _OF_DEGREES if key in parallel)],
        "the workload": [key for key in _OF_THE_WORKLOAD if key in options],
    }
    for owner, keys in said_elsewhere.items():
        if keys:
            raise ConfigError(f"{keys[0]} is for {owner} to say", where="engine.options", todo="leave it out")
    for key, why in _UNEVEN.items():
        if options.get(key) not in (None, False, "NoCaching"):
            raise ConfigError(f"{key} makes steps unequal: {why}", where="engine.options", todo="leave it out")


def guided(work: WorkloadSettings) -> bool:
    """Whether a step is two forwards. The engine has a switch for it, and no look at the scale."""
    return work.guidance_scale > 1


def task_of(work: WorkloadSettings) -> str:
    """The engine's name of what is asked for."""
    return "t2i" if work.endpoint == Endpoint.IMAGE else "t2v"


def configuration(form: Form, work: WorkloadSettings, options: Mapping[str, Any], *, steps: int) -> str:
    """The file's text. ``steps`` is what a request without a number of its own would run."""
    values: dict[str, Any] = {
        "feature_caching": "NoCaching",
        "max_custom_size": max(_LARGEST, work.width, work.height),
        "min_custom_size": min(_SMALLEST, work.width, work.height),
        **{key: value for key, value in options.items() if key not in ("model_cls", "task", "parallel")},
        "infer_steps": steps,
        "enable_cfg": guided(work),
        "sample_guide_scale": work.guidance_scale,
        "cpu_offload": bool(form.offload),
    }
    if work.endpoint != Endpoint.IMAGE:
        sizes = {"target_height": work.height, "target_width": work.width}
        values |= {**sizes, "target_video_length": work.frames, "fps": work.fps}
    if work.flow_shift is not None:
        values["sample_shift"] = work.flow_shift
    if form.offload:
        values["offload_granularity"] = "block"
    if form.cards > 1:  # one rank has no process group, and a section would ask for one
        degrees = {"seq_p_size": form.sequence_degree, "seq_p_attn_type": "ulysses", "cfg_p_size": form.cfg}
        values["parallel"] = {**options.get("parallel", {}), **degrees}
    return json.dumps(values, ensure_ascii=False, indent=1)
