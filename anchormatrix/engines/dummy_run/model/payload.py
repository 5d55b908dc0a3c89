"""HTTP bodies as checked requests: multipart forms for videos, JSON for images. Every wrong field is named."""

from __future__ import annotations

import email.parser
import email.policy
import json
import math
from collections.abc import Mapping
from typing import Any

from anchormatrix.engines.dummy_run.model.models import ModelSpec

_MAX_STEPS = 200  # entrypoints/openai/protocol/videos.py and images.py


class PayloadError(Exception):
    """The body is not a request; the message is one line for the client."""


def parse_form(content_type: str, body: bytes) -> dict[str, str]:
    """Return the text fields of a multipart body; parts with a file name are left out."""
    if not content_type.lower().startswith("multipart/form-data"):
        raise PayloadError(f"content type {content_type!r}: expected multipart/form-data")
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise PayloadError("the body has no parts with the boundary of its content type")
    fields: dict[str, str] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str) and part.get_filename() is None:
            data = part.get_payload(decode=True)
            fields[name] = data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
    return fields


def parse_json(body: bytes) -> dict[str, Any]:
    """Return a JSON object."""
    try:
        values = json.loads(body)
    except ValueError as error:
        raise PayloadError(f"the body is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise PayloadError("the body is not a JSON object")
    return values


def to_request(values: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """Return the fields of :class:`pipeline.Request` as plain values, checked against the model.

    Raises :class:`PayloadError` naming the field, what was given and what is allowed.
    """
    prompt = values.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise PayloadError("prompt: missing or empty")
    _extra(values.get("extra_params"))
    width, height = _size(values)
    frames = _whole(values, "num_frames", 5, 1, 10_000) if spec.is_video else 1
    negative = str(values.get("negative_prompt") or "")
    guidance = _number(values, "guidance_scale", 5.0)
    if spec.family == "qwen-image":  # guided by another field and only beside a negative prompt
        guidance = (_number(values, "true_cfg_scale", 4.0) or 4.0) if negative else 1.0
    request = {
        "prompt": prompt,
        "negative_prompt": negative,
        "width": width,
        "height": height,
        "frames": frames,
        "steps": _whole(values, "num_inference_steps", 4, 1, _MAX_STEPS),
        "seed": _whole(values, "seed", 0, 0, 2**63 - 1),
        "guidance_scale": guidance,
        "flow_shift": _number(values, "flow_shift", 3.0),
    }
    try:
        spec.latent_shape(width, height, frames)
    except ValueError as error:
        raise PayloadError(str(error)) from None
    return request


def _size(values: Mapping[str, Any]) -> tuple[int, int]:
    size = values.get("size")
    if size in (None, "", "auto"):
        return _whole(values, "width", 128, 1, 16384), _whole(values, "height", 128, 1, 16384)
    width, x, height = str(size).partition("x")
    if not (x and width.isdecimal() and height.isdecimal()):
        raise PayloadError(f"size {size!r}: expected WIDTHxHEIGHT")
    return int(width), int(height)


def _whole(values: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    given = values.get(name)
    if given in (None, ""):
        return default
    try:
        number = int(str(given))
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise PayloadError(f"{name} {given!r}: expected a whole number from {low} to {high}")
    return number


def _number(values: Mapping[str, Any], name: str, default: float) -> float:
    given = values.get(name)
    if given in (None, ""):
        return default
    try:
        number = float(str(given))
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1000:
        raise PayloadError(f"{name} {given!r}: expected a number from 0 to 1000")
    return number


def _extra(text: Any) -> None:
    """``extra_params`` are for engines with options of their own; here there are none to set."""
    if text in (None, "", {}):
        return
    values = parse_json(text.encode()) if isinstance(text, str) else text
    if values:
        raise PayloadError(f"extra_params {values!r}: the dummy run has no extra parameters")
