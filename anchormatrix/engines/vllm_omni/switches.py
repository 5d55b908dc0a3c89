"""Switches: arguments that change a step's structure, each with the lines that prove it or speak against it.

They are given for all forms in ``engine.extra_args``. The lines are vllm-omni's (0.30.0, ``vllm_omni``): cache
``diffusion/cache/*/backend.py`` and ``diffusion/worker/diffusion_model_runner.py:412``, attention
``diffusion/attention/selector.py:84`` and ``:93``, ``diffusion/distributed/hsdp.py:240`` and ``a2a_permute.py:89``,
quantisation ``quantization/factory.py:409``, quantised attention on NPUs
``diffusion/attention/backends/flash_attn.py:601`` and ``rainfusion_attn.py:515``, step execution
``diffusion/diffusion_engine.py:430``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anchormatrix.engines.vllm_omni.features import Line, said


@dataclass(frozen=True)
class Switch:
    """One switch. ``proof`` is the line by which a worker tells that it is in effect (``VALUE`` stands for its value),
    ``against`` one by which it is not, ``lacking`` what is not known without a proof."""

    proof: str = ""
    against: str = ""
    lacking: str = "no line of the log tells whether it is in effect"


_BUILT = "the log tells that its configuration was built, not that layers were replaced"
# MindIE SD 3.1.0, ``quantization/quantize.py:533``: the only quantiser that counts what it replaced
_QUANTISED = r"Online quantization completed\. (?:[1-9]\d* linear|\d+ linear layers quantized, [1-9]\d* FA) "
_NOTHING_QUANTISED = r"Online quantization completed\. 0 linear layers quantized, 0 FA "
_SWITCHES = {
    "--cache-backend": Switch(
        r"Cache-dit enabled successfully on|Enabling cache-dit on|TeaCache (?:applied|enabled)|MagCache: Applying"
        r"|SeaCache enabled for|StepCache enabled",
        r"Cache backend '.*' is not supported for|Cache-dit is not enabled|TeaCache may not be applied",
    ),
    "--diffusion-attention-backend": Switch(r"Resolved diffusion attention backend 'VALUE'"),
    "--quantization": Switch(_QUANTISED, _NOTHING_QUANTISED, _BUILT),
    "--diffusion-quantization-config": Switch(_QUANTISED, _NOTHING_QUANTISED, _BUILT),
    "--diffusion-kv-cache-dtype": Switch(
        r"NPU attention uses MindIE-SD \S+ Runtime|RainFusion uses MindIE-SD sparse attention, precision="
    ),
    "--use-hsdp": Switch(r"HSDP applied to model"),
    "--ulysses-a2a-permute": Switch(r"\[a2a_permute\] JIT kernel built and loaded"),
    "--diffusion-offload-config": Switch(
        r"offloading enabled\b|layer-wise offloading on ", r"[Ss]kipping (?:model-level )?offloading|, skipping"
    ),
    "--step-execution": Switch(against=r"\[RequestBatch\] engine init"),
}
_OF_FORMS = re.compile(
    r"--(?:num-gpus|tensor-parallel-size|usp|ulysses-degree|ring(?:-degree)?|allgather-degree|cfg-parallel-size"
    r"|pipeline-parallel-size|enable-(?:distributed-)?(?:layerwise|cpu)-offload)(?:=|$)|-(?:tp|pp)(?:=|\d|$)"
)


def of_forms(arguments: Iterable[str]) -> str:
    """The first argument that a form must name, not ``engine.extra_args``; empty when there is none."""
    return next((word for word in arguments if _OF_FORMS.match(word.replace("_", "-"))), "")


def judged(arguments: Sequence[str], lines: Sequence[Line], *, stepwise: bool) -> tuple[dict[str, str], dict[str, str]]:
    """What the workers' lines say against the switches among the arguments, and what of them nothing proves.

    ``stepwise``: requests were timed step by step, which only step execution does.
    """
    against: dict[str, str] = {}
    unproven: dict[str, str] = {}
    for name, value in _given(arguments):
        switch = _SWITCHES[name]
        if refused := _first(switch.against, value, lines):
            against[name] = refused
        elif not (_first(switch.proof, value, lines) or (name == "--step-execution" and stepwise)):
            unproven[name] = switch.lacking
    return against, unproven


def _given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(arguments):
        name, _, value = word.partition("=")
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        value = value or ("" if following.startswith("--") else following)
        if name in _SWITCHES and not (name == "--cache-backend" and value == "none"):
            yield name, value


def _first(pattern: str, value: str, lines: Iterable[Line]) -> str:
    if not pattern:
        return ""
    wanted = re.compile(pattern.replace("VALUE", re.escape(value)), re.IGNORECASE)
    return next((said(line) for _, line in lines if wanted.search(line)), "")
