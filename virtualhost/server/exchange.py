"""The exchange with a serving session: requests as clients send them, log text in time, endings; forms by name."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from virtualhost.host.split import DEGREES, OFFLOADS, Split
from virtualhost.host.strict import ScenarioError
from virtualhost.server.picture import Picture

_Number = TypeVar("_Number", int, float)


class Chunk(NamedTuple):
    """Text that appears in the log ``at_s`` virtual seconds after the beginning of what it belongs to."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Outcome:
    """What a start, a request or a stop brought.

    ``end`` is empty while the server lives on; else how it ends: ``exit`` (code 1), ``hang`` (nothing more happens),
    ``sigkill`` (the main process is killed) or ``rank_killed`` (``rank`` is). ``response`` is ``ok``, ``lost``,
    ``error`` or ``none``; ``content`` are the response's bytes, made when they are asked for, and ``fingerprint`` is
    their SHA-256. ``durations`` are the stage durations that the response tells.
    """

    chunks: tuple[Chunk, ...]
    virtual_s: float
    end: str = ""
    response: str = "none"
    picture: Picture | None = None
    rank: int = 0
    durations: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of the log text."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def content(self) -> bytes:
        """The response's bytes; none of a request that computed nothing."""
        return self.picture.encoded() if self.picture else b""

    @property
    def fingerprint(self) -> str:
        """The response's fingerprint, empty when there is none."""
        return hashlib.sha256(self.content).hexdigest() if self.content else ""


@dataclass(frozen=True)
class Ask:
    """What a client asked for; ``endpoint`` is the request line of the access log. A ``true_cfg_scale`` of 0 is not
    sent."""

    steps: int
    endpoint: str = "POST /v1/videos/sync"
    seed: int = 42
    guidance: float = 5.0
    width: int = 832
    height: int = 480
    frames: int = 81
    fps: float = 16.0
    prompt: str = ""
    negative_prompt: str = ""
    true_cfg_scale: float = 0.0

    @property
    def path(self) -> str:
        """The path of the endpoint."""
        return self.endpoint.partition(" ")[2]

    @property
    def synchronous(self) -> bool:
        """Whether the response is the output; a job's is sent before it begins."""
        return bool(self.path) and self.path != "/v1/videos"

    @property
    def kind(self) -> str:
        """``video`` or ``image``."""
        return "image" if "/images/" in self.endpoint else "video"


def parse_split(name: str) -> Split:
    """Return the split of a form's name such as ``tp1-usp4`` or ``tp1-usp2-ring2+layerwise-offload+mask4``."""
    parts, *features = name.split("+")
    values: dict[str, Any] = {}
    for part in parts.split("-"):
        match = re.fullmatch(rf"({'|'.join(DEGREES)})([1-9]\d*)", part)
        if match is None or match[1] in values:
            raise ScenarioError(f"{name!r} is not a form: {part!r} is no degree or given twice")
        values[match[1]] = int(match[2])
    offload, chunks = "", 1
    for feature in features:
        if feature in OFFLOADS:
            offload = feature
        elif feature.startswith("mask") and feature[4:].isdigit():
            chunks = int(feature[4:])
        else:
            raise ScenarioError(f"{name!r} is not a form: {feature!r} is no feature")
    return Split(**values, offload=offload, mask_chunks=chunks)


def picture(ask: Ask, split: Split, *, wrong: bool = False, black: bool = False) -> Picture:
    """What a form computes of a request: of prompt, seed, geometry, steps and guidance, rounded as the form adds up.

    ``wrong``: a form that loses a part of the computation computes another picture, and each such form its own.
    """
    subject = f"{ask.prompt}|{ask.seed}|{ask.width}x{ask.height}x{ask.frames}|{ask.steps}|{ask.guidance}"
    return Picture(
        subject=f"{subject}|{split.name}" if wrong else subject,
        width=ask.width,
        height=ask.height,
        seconds=ask.frames / ask.fps if ask.kind == "video" else 0.0,
        rounding=f"tp{split.tp} ring{split.ring}" if split.tp * split.ring > 1 else "",
        black=black,
    )


def cut(chunks: Sequence[Chunk], share: float) -> list[Chunk]:
    """Return text that ends in its middle, in the same time."""
    whole = "".join(chunk.text for chunk in chunks)
    return [Chunk(chunks[0].at_s, whole[: int(len(whole) * share)]), Chunk(chunks[-1].at_s, "")]


def read_ask(path: str, kind: str, body: bytes, served: str) -> Ask:
    """Read the fields of a request; unknown ones are dropped, as the release does. Raises ValueError naming the field
    that is missing or wrong, or a model other than the one ``served``."""
    fields = _multipart(kind, body) if kind.startswith("multipart/form-data") else _json_fields(body)
    if not fields.get("prompt"):
        raise ValueError("prompt: field required")
    if (model := fields.get("model")) and model != served:  # api_server.py:2074, video/generation/helpers.py:990
        raise ValueError(f"Model mismatch: request specifies '{model}' but server is running '{served}'.")
    default = Ask(50, f"POST {path}")
    width, height = default.width, default.height
    if "size" in fields:
        sizes = re.fullmatch(r"(\d+)x(\d+)", str(fields["size"]))
        if sizes is None:
            raise ValueError(f"size: {fields['size']!r} is not WIDTHxHEIGHT")
        width, height = int(sizes[1]), int(sizes[2])
    return Ask(
        steps=_number(fields, "num_inference_steps", default.steps, least=1, most=200),
        endpoint=default.endpoint,
        seed=_number(fields, "seed", default.seed),
        guidance=_number(fields, "guidance_scale", default.guidance, least=0, most=20),
        width=_number(fields, "width", width, least=1),
        height=_number(fields, "height", height, least=1),
        frames=_number(fields, "num_frames", default.frames, least=1),
        fps=_number(fields, "fps", default.fps, least=1),
        prompt=str(fields["prompt"]),
        negative_prompt=str(fields.get("negative_prompt") or ""),
        true_cfg_scale=_number(fields, "true_cfg_scale", default.true_cfg_scale, least=0, most=20),
    )


def _number(
    fields: dict[str, Any], name: str, default: _Number, *, least: float = -math.inf, most: float = math.inf
) -> _Number:
    """A field within the limits of ``protocol/videos.py`` and ``protocol/images.py``."""
    if name not in fields or fields[name] in ("", None):
        return default
    try:
        value = type(default)(fields[name])
    except (TypeError, ValueError):
        raise ValueError(f"{name}: {fields[name]!r} is not a number") from None
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is not from {least} to {most}")
    return value


def _json_fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body or b"{}")
    except ValueError:
        raise ValueError("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("the body is not a JSON object")
    return fields


def _multipart(kind: str, body: bytes) -> dict[str, Any]:
    match = re.search(r'boundary="?([^";]+)"?', kind)
    if match is None:
        raise ValueError("multipart/form-data without a boundary")
    fields: dict[str, Any] = {}
    for part in body.split(b"--" + match[1].encode())[1:-1]:
        head, _, value = part.strip(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]*)"', head)
        if name is not None:
            fields[name[1].decode(errors="replace")] = value.decode(errors="replace")
    return fields
