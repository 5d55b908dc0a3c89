"""The text of a first configuration: what was answered and detected, the model's figures with the file each is from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anchormatrix.errors import ConfigError
from anchormatrix.model_files.figures import Figures, Value
from anchormatrix.new_config.detect import Detected, folders_of
from anchormatrix.records.settings.things import HostSettings
from anchormatrix.records.settings.values import DeviceKind, HostKind

REQUIRED = ("layers", "heads", "head_dim", "sequence_tokens", "weights_gb")
PROMPT = "A lighthouse on a cliff at dawn, waves below, slow camera flight"
_IDLE_MB = {DeviceKind.NVIDIA: 1024, DeviceKind.CPU: 100000}


@dataclass(frozen=True)
class Draft:
    """Everything that a first configuration is made of."""

    host: HostSettings
    detected: Detected
    device: DeviceKind
    engine: str
    command: tuple[str, ...]
    python: tuple[str, ...]
    model: str
    output: tuple[int, int, int]
    guidance: float
    sizes: tuple[int, ...]

    @property
    def endpoint(self) -> str:
        """The endpoint for the output; sglang renders videos behind its asynchronous one alone."""
        if self.output[2] == 1:
            return "image"
        return "video-async" if self.engine == "sglang" else "video"


def draft_text(draft: Draft, figures: Figures, most_forms: int) -> str:
    """The YAML of a draft. Raises :class:`ConfigError` when the model's files do not tell what is required."""
    missing = [figures.of(key) for key in REQUIRED if figures.of(key).value is None]
    if missing:
        raise ConfigError(
            "; ".join(f"model.{one.key}: {one.missing}" for one in missing[:3]),
            where=draft.model,
            expected="a folder in the layout of diffusers whose model is known",
            todo="see docs/first-hour.md, or copy the nearest of config/examples and put the figures in by hand",
        )
    return "\n".join(_lines(draft, figures, most_forms)) + "\n"


def _lines(draft: Draft, figures: Figures, most_forms: int) -> Iterator[str]:
    width, height, frames = draft.output
    yield "# Made by scripts/new_config.py. Only what differs from config/config.yaml is here; config/README.md"
    yield "# explains every key. Look first: python scripts/doctor.py --config THIS_FILE"
    yield from _section("host", _host(draft))
    yield from _section("device", _device(draft))
    yield from _section("engine", _engine(draft))
    yield ""
    yield "workload: # what every request asks for"
    yield f"  endpoint: {draft.endpoint}"
    yield f"  prompt: {_yaml(PROMPT)}"
    yield f"  width: {width}"
    yield f"  height: {height}"
    yield f"  frames: {frames}"
    yield f"  guidance_scale: {draft.guidance:g}"
    yield ""
    yield "model: # as the model's own files say"
    for figure in figures:
        if figure.value is not None:
            yield f"  {figure.key}: {_value(figure.value)} # {figure.source}"
        else:
            yield f"  # {figure.key}: {figure.missing}"
    yield "  # activation_gb: no file tells it; proof.peak_memory_mb in a first session.json does"
    if draft.device in _IDLE_MB:
        yield from _section("health", {"static_memory_mb": _IDLE_MB[draft.device]})
    yield ""
    yield "matrix:"
    yield f"  sizes: {_yaml(list(draft.sizes))} # more sizes take longer; snakemake -n says what it expects"
    yield "  forms: auto # the forms that are possible; or a list per size, as in config/config.yaml"
    yield f"  most_forms: {most_forms} # the most promising of them; null: all"
    if draft.device is DeviceKind.CPU:
        yield from _section("selection", {"offload_order": [], "memory_reserve_gb": 0.5})


def _host(draft: Draft) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": draft.host.alias}
    tools = [path for name, path in draft.detected.tools.items() if name in ("npu-smi", "nvidia-smi")]
    if draft.host.kind == HostKind.SSH and draft.host.ssh:
        ssh = draft.host.ssh
        found |= {"kind": "ssh", "ssh": {"host": ssh.host}}
        found["ssh"] |= {"user": ssh.user} if ssh.user else {}
        found["ssh"] |= {"port": ssh.port} if ssh.port != 22 else {}
    if tools:
        found["path"] = folders_of(tools)
    return found


def _device(draft: Draft) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": draft.device.value}
    if draft.device is DeviceKind.ASCEND and draft.detected.toolkit_info:
        found["toolkit"] = ["grep", "-h", "-m1", "^version=", draft.detected.toolkit_info]
    if draft.device is DeviceKind.CPU:
        found["cards"] = max(draft.sizes)
    return found


def _engine(draft: Draft) -> dict[str, Any]:
    version = [*draft.command, "--version"]
    if draft.engine != "vllm-omni":
        line = f"import importlib.metadata as m; print(m.version({json.dumps(draft.engine)}))"
        version = [*draft.python, "-c", line]
    return {
        "kind": draft.engine,
        "command": list(draft.command),
        "version": version,
        "python": list(draft.python),
        "model": draft.model,
    }


def _section(name: str, values: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"{name}:"
    yield from (f"  {key}: {_yaml(value)}" for key, value in values.items())


def _value(value: Value) -> str:
    return json.dumps(value)


def _yaml(value: Any) -> str:
    """A value as JSON, which YAML 1.2 reads the same way."""
    return json.dumps(value, ensure_ascii=False)
