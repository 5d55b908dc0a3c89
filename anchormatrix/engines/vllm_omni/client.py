"""Requests to vllm-omni: videos at once or as a job, images, and the profiler's endpoints."""

from __future__ import annotations

import json
from typing import Any

from anchormatrix.config.secrets import revealed_values
from anchormatrix.engines.http import HttpClient, Output, json_object, media_type, multipart, positive
from anchormatrix.engines.jobs import finished_job, first_image
from anchormatrix.engines.vllm_omni.answers import stages_of
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.values import Endpoint


class OmniClient(HttpClient):
    """A client of one vllm-omni server, for one workload."""

    def __init__(self, base_url: str, workload: WorkloadSettings, model: str, *, request_timeout_s: float) -> None:
        super().__init__(base_url, request_timeout_s=request_timeout_s)
        self._workload = workload
        self._model = model

    def start_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`."""
        return self.tried("/start_profile")

    def stop_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`. The server writes its files before it answers."""
        return self.tried("/stop_profile")

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
            fields["extra_params"] = json.dumps(revealed_values(work.extra_params), sort_keys=True)
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
            **({"extra_params": revealed_values(work.extra_params)} if work.extra_params else {}),
            **({"flow_shift": work.flow_shift} if work.flow_shift is not None else {}),
        }

    def ask(self, steps: int) -> Output:
        """See :class:`~anchormatrix.engines.http.HttpClient`."""
        if self._workload.endpoint == Endpoint.IMAGE:
            return self._image(steps)
        return self._video_async(steps) if self._workload.endpoint == Endpoint.VIDEO_ASYNC else self._video(steps)

    def _video(self, steps: int) -> Output:
        answer = self.post("/v1/videos/sync", files=multipart(self.form_fields(steps)))
        told = stages_of(_json(answer.headers.get("X-Stage-Durations", "")))
        return Output(answer.content, media_type(answer), positive(answer.headers.get("X-Peak-Memory-MB")), told)

    def _video_async(self, steps: int) -> Output:
        job = json_object(self.post("/v1/videos", files=multipart(self.form_fields(steps))))
        address, job = finished_job(self, "/v1/videos", job, timeout_s=self._timeout_s)
        video = self.get(f"{address}/content")
        told = stages_of(job.get("stage_durations"))
        return Output(video.content, media_type(video), positive(job.get("peak_memory_mb")), told)

    def _image(self, steps: int) -> Output:
        values = json_object(self.post("/v1/images/generations", json=self.image_body(steps)))
        told = values.get("metrics")
        metrics = told if isinstance(told, dict) else {}
        stages = stages_of(metrics.get("stage_durations"))
        return Output(first_image(values), "image/*", positive(metrics.get("peak_memory_mb")), stages)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
