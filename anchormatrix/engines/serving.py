"""The serving protocol, client side: readiness, requests, the profiler."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from anchormatrix.records.requests import RequestStatus
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.values import Endpoint

if TYPE_CHECKING:
    import requests

_POLL_S = 0.2
_CONNECT_S = 5.0
_ERROR_CHARS = 300


@dataclass(frozen=True)
class Response:
    """What became of a request. ``status`` is ``ok``, ``error`` (the server refused) or ``lost`` (no answer arrived).

    ``fingerprint`` identifies the output: the first 16 hex digits of the SHA-256 of its bytes. ``peak_memory_mb`` is
    the most device memory (in units of 2²⁰ bytes) that the request took, where the answer tells it. ``content`` are the
    output's bytes and ``media`` their type.
    """

    status: RequestStatus
    latency_s: float
    fingerprint: str | None = None
    error: str = ""
    peak_memory_mb: float | None = None
    content: bytes = field(default=b"", repr=False)
    media: str = ""


class ServingClient:
    """One client of one server. Requests are sent one at a time."""

    def __init__(self, base_url: str, workload: WorkloadSettings, model: str, *, request_timeout_s: float) -> None:
        import requests  # noqa: PLC0415  a tenth of a second that is hidden behind the server's own start

        self._url = base_url.rstrip("/")
        self._workload = workload
        self._model = model
        self._timeout_s = request_timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy of the environment must not see a loopback server
        self._lost: tuple[type[Exception], ...] = (requests.RequestException,)

    def ready(self) -> bool:
        """Whether ``GET /health`` answers 200."""
        try:
            return bool(self._session.get(f"{self._url}/health", timeout=_CONNECT_S).status_code == 200)
        except self._lost:
            return False

    def generate(self, steps: int) -> Response:
        """Send one request of the workload with this number of steps and wait for its output."""
        started = time.monotonic()
        try:
            answer = self._ask(steps)
        except self._lost as error:
            return Response(RequestStatus.LOST, time.monotonic() - started, error=_short(error))
        except _RefusedError as error:
            return Response(RequestStatus.ERROR, time.monotonic() - started, error=str(error))
        latency_s, fingerprint = time.monotonic() - started, hashlib.sha256(answer.content).hexdigest()[:16]
        return Response(
            RequestStatus.OK,
            latency_s,
            fingerprint,
            peak_memory_mb=answer.peak_memory_mb,
            content=answer.content,
            media=answer.media,
        )

    def start_profile(self) -> str | None:
        """Switch the profiler on. Returns what went wrong, or ``None``."""
        return self._profile("start_profile")

    def stop_profile(self) -> str | None:
        """Switch the profiler off; it writes its files before it answers. Returns what went wrong, or ``None``."""
        return self._profile("stop_profile")

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def form_fields(self, steps: int) -> dict[str, str]:
        """The multipart fields of a video request."""
        work = self._workload
        fields: dict[str, Any] = {
            "prompt": work.prompt,
            "width": work.width,
            "height": work.height,
            "num_frames": work.frames,
            "fps": work.fps,
            "num_inference_steps": steps,
            "seed": work.seed,
            "guidance_scale": work.guidance_scale,
        }
        if work.negative_prompt:
            fields["negative_prompt"] = work.negative_prompt
        if work.flow_shift is not None:
            fields["flow_shift"] = work.flow_shift
        if work.extra_params:
            fields["extra_params"] = json.dumps(dict(work.extra_params), sort_keys=True)
        return {key: str(value) for key, value in fields.items()}

    def image_body(self, steps: int) -> dict[str, Any]:
        """The JSON body of an image request."""
        work = self._workload
        return {
            "model": self._model,
            "prompt": work.prompt,
            **({"negative_prompt": work.negative_prompt} if work.negative_prompt else {}),
            "size": f"{work.width}x{work.height}",
            "n": 1,
            "response_format": "b64_json",
            "num_inference_steps": steps,
            "guidance_scale": work.guidance_scale,
            "seed": work.seed,
            **work.extra_params,
        }

    def _ask(self, steps: int) -> _Output:
        if self._workload.endpoint == Endpoint.IMAGE:
            return self._image(steps)
        return self._video_async(steps) if self._workload.endpoint == Endpoint.VIDEO_ASYNC else self._video(steps)

    def _video(self, steps: int) -> _Output:
        answer = self._post("/v1/videos/sync", files=_multipart(self.form_fields(steps)))
        return _Output(answer.content, _media(answer), _megabytes(answer.headers.get("X-Peak-Memory-MB")))

    def _video_async(self, steps: int) -> _Output:
        deadline = time.monotonic() + self._timeout_s
        job = _object(self._post("/v1/videos", files=_multipart(self.form_fields(steps))))
        name = str(job.get("id", ""))
        if not re.fullmatch(r"[\w.-]{1,200}", name):
            raise _RefusedError(f"the job has no usable id: {_short(job)}")
        while job.get("status") not in ("completed", "failed", "cancelled"):
            if time.monotonic() > deadline:
                raise _RefusedError(f"job {name} is still {job.get('status')!r} after {self._timeout_s:.0f} s")
            time.sleep(_POLL_S)
            job = _object(self._get(f"/v1/videos/{name}"))
        if job["status"] != "completed":
            raise _RefusedError(f"job {name} {job['status']}: {_short(job.get('error') or 'no reason given')}")
        video = self._get(f"/v1/videos/{name}/content")
        return _Output(video.content, _media(video), _megabytes(job.get("peak_memory_mb")))

    def _image(self, steps: int) -> _Output:
        values = _object(self._post("/v1/images/generations", json=self.image_body(steps)))
        try:
            content = base64.b64decode(values["data"][0]["b64_json"], validate=True)
        except (KeyError, IndexError, TypeError, binascii.Error):
            raise _RefusedError(f"no image in the answer: {_short(values)}") from None
        metrics = values.get("metrics")
        peak_mb = _megabytes(metrics.get("peak_memory_mb")) if isinstance(metrics, dict) else None
        return _Output(content, "image/*", peak_mb)

    def _profile(self, verb: str) -> str | None:
        try:
            self._post(f"/{verb}")
        except self._lost as error:
            return f"/{verb}: {_short(error)}"
        except _RefusedError as error:
            return f"/{verb}: {error}"
        return None

    def _post(self, path: str, **body: Any) -> requests.Response:
        return _accepted(self._session.post(self._url + path, timeout=(_CONNECT_S, self._timeout_s), **body))

    def _get(self, path: str) -> requests.Response:
        return _accepted(self._session.get(self._url + path, timeout=(_CONNECT_S, self._timeout_s)))


class _Output(NamedTuple):
    """An output's bytes, their type, and the device memory that the request took, where the answer tells it."""

    content: bytes
    media: str
    peak_memory_mb: float | None


class _RefusedError(Exception):
    """The server answered, but not with an output."""


def _megabytes(told: object) -> float | None:
    """The number that an answer tells; anything but a positive finite one tells nothing."""
    try:
        value = float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if 0 < value < math.inf else None


def _accepted(answer: requests.Response) -> requests.Response:
    if answer.status_code >= 400:
        raise _RefusedError(f"HTTP {answer.status_code}: {_short(answer.text)}")
    return answer


def _media(answer: requests.Response) -> str:
    return str(answer.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


def _object(answer: requests.Response) -> dict[str, Any]:
    try:
        values = answer.json()
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise _RefusedError(f"the answer is not a JSON object: {_short(answer.text)}")
    return values


def _multipart(fields: dict[str, str]) -> dict[str, tuple[None, str]]:
    return {key: (None, value) for key, value in fields.items()}


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _ERROR_CHARS else text[: _ERROR_CHARS - 1] + "…"
