"""Requests to a LightX2V server: a task is made, polled, and its output fetched (f8aee98, ``lightx2v/server/api``)."""

from __future__ import annotations

from typing import Any

from anchormatrix.config.secrets import revealed_values
from anchormatrix.engines.http import HttpClient, Output, RefusedError, json_object, media_type
from anchormatrix.engines.jobs import finished_job
from anchormatrix.engines.lightx2v.models import RELEASE
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.values import Endpoint

_TASKS = "/v1/tasks"
_NO_PROFILER = f"{RELEASE} has no profiler that a running server can be asked for"


class LightX2VClient(HttpClient):
    """A client of one server, for one workload. Guidance, shift and frame rate are the launch's, not the request's."""

    def __init__(self, base_url: str, workload: WorkloadSettings, *, request_timeout_s: float) -> None:
        super().__init__(base_url, request_timeout_s=request_timeout_s)
        self._workload = workload

    def start_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`."""
        return _NO_PROFILER

    def stop_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`."""
        return _NO_PROFILER

    def body(self, steps: int) -> dict[str, Any]:
        """The JSON body of a task."""
        work = self._workload
        fields: dict[str, Any] = {
            "prompt": work.prompt,
            "negative_prompt": work.negative_prompt,
            "infer_steps": steps,
            "seed": work.seed,
            "target_shape": [work.height, work.width],
        }
        if work.endpoint != Endpoint.IMAGE:
            fields["target_video_length"] = work.frames
        return fields | revealed_values(work.extra_params)

    def ask(self, steps: int) -> Output:
        """See :class:`~anchormatrix.engines.http.HttpClient`."""
        kind = "image" if self._workload.endpoint == Endpoint.IMAGE else "video"
        made = json_object(self.post(f"{_TASKS}/{kind}/", json=self.body(steps)))
        job = {"id": made.get("task_id", ""), "status": made.get("task_status")}
        address, _ = finished_job(self, _TASKS, job, status_path="/status", timeout_s=self._timeout_s)
        output = self.get(f"{address}/result")
        if not output.content:
            raise RefusedError(f"the output of {address} is empty")
        return Output(output.content, media_type(output))
