"""Answers in the shape of the OpenAI interface, which several engines share: image bytes, and jobs that are polled."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Mapping
from typing import Any

from anchormatrix.engines.http import HttpClient, RefusedError, json_object, short

_POLL_S = 0.2
_ENDED = ("completed", "failed", "cancelled")


def first_image(values: Mapping[str, Any]) -> bytes:
    """The bytes of the first image of an answer; raises :class:`RefusedError` when there is none."""
    try:
        return base64.b64decode(values["data"][0]["b64_json"], validate=True)
    except (KeyError, IndexError, TypeError, binascii.Error):
        raise RefusedError(f"no image in the answer: {short(values)}") from None


def finished_job(
    client: HttpClient, path: str, job: dict[str, Any], *, timeout_s: float, status_path: str = ""
) -> tuple[str, dict[str, Any]]:
    """Poll ``<path>/<id><status_path>`` of a job just made until it is completed; returns ``<path>/<id>`` and its last
    state.

    Raises :class:`RefusedError` when it fails, is cancelled, or takes longer than ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    name = str(job.get("id", ""))
    if not re.fullmatch(r"[\w.-]{1,200}", name):
        raise RefusedError(f"the job has no usable id: {short(job)}")
    while job.get("status") not in _ENDED:
        if time.monotonic() > deadline:
            raise RefusedError(f"job {name} is still {job.get('status')!r} after {timeout_s:.0f} s")
        time.sleep(_POLL_S)
        job = json_object(client.get(f"{path}/{name}{status_path}"))
    if job["status"] != "completed":
        raise RefusedError(f"job {name} {job['status']}: {short(job.get('error') or 'no reason given')}")
    return f"{path}/{name}", job
