"""Requests to SGLang's diffusion server: images, videos as jobs, the dump of their times, and the profiler's fields."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Mapping
from typing import Any

from anchormatrix.config.secrets import revealed_values
from anchormatrix.engines.client import ServerFiles, Told
from anchormatrix.engines.http import HttpClient, Output, json_object, media_type, positive
from anchormatrix.engines.jobs import finished_job, first_image
from anchormatrix.engines.sglang.dump import told_by
from anchormatrix.errors import HostError
from anchormatrix.records.settings.things import WorkloadSettings
from anchormatrix.records.settings.values import Endpoint


class SglangClient(HttpClient):
    """A client of one server, for one workload.

    Every request names a file on the server's host for its times, which is read back once the output is there. The
    profiler is switched on by fields of the request (``always`` are fields of every request): a captured one skips its
    first step and has the others recorded, on rank 0 only (0.5.23, ``multimodal_gen/runtime/utils/profiler.py:143``).
    """

    def __init__(
        self,
        base_url: str,
        workload: WorkloadSettings,
        files: ServerFiles,
        *,
        always: Mapping[str, Any],
        request_timeout_s: float,
    ) -> None:
        super().__init__(base_url, request_timeout_s=request_timeout_s)
        self._workload = workload
        self._files = files
        self._always = always
        self._profiling = False
        self._name = f"times-{secrets.token_hex(4)}"
        self._sent = 0

    def start_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`. The next requests carry the profiler's fields."""
        self._profiling = True
        return None

    def stop_profile(self) -> str | None:
        """See :class:`~anchormatrix.engines.client.Client`. A trace is whole before its request is answered."""
        self._profiling = False
        return None

    def body(self, steps: int, dump: str) -> dict[str, Any]:
        """The JSON body of a request; ``dump`` is the file for its times."""
        work = self._workload
        fields: dict[str, Any] = {
            "prompt": work.prompt,
            "width": work.width,
            "height": work.height,
            "n": 1,
            "num_inference_steps": steps,
            "guidance_scale": work.guidance_scale,
            "seed": work.seed,
            "perf_dump_path": dump,
            **self._always,
        }
        if work.endpoint == Endpoint.IMAGE:
            fields |= {"response_format": "b64_json", "output_format": "png"}  # the default is a lossy file on its disk
        else:
            # A video is fetched from a file (runtime/entrypoints/openai/video_api.py:426, :738).
            fields |= {"num_frames": work.frames, "fps": work.fps, "output_path": self._files.directory}
        if work.negative_prompt:
            fields["negative_prompt"] = work.negative_prompt
        if work.flow_shift is not None:
            fields["flow_shift"] = work.flow_shift
        if self._profiling:
            # N of the request means N + 1 recorded steps after the first (profiler.py:96-107, schedule's warmup=1).
            fields |= {"profile": True, "num_profiled_timesteps": max(0, steps - 2)}
        return fields | revealed_values(work.extra_params)

    def ask(self, steps: int) -> Output:
        """See :class:`~anchormatrix.engines.http.HttpClient`."""
        self._sent += 1
        dump = posixpath.join(self._files.directory, f"{self._name}-{self._sent}.json")
        body = self.body(steps, dump)
        if self._workload.endpoint == Endpoint.IMAGE:
            values = json_object(self.post("/v1/images/generations", json=body))
            return Output(first_image(values), "image/*", positive(values.get("peak_memory_mb")), self._told(dump))
        job = json_object(self.post("/v1/videos", json=body))
        address, job = finished_job(self, "/v1/videos", job, timeout_s=self._timeout_s)
        video = self.get(f"{address}/content")
        return Output(video.content, media_type(video), positive(job.get("peak_memory_mb")), self._told(dump))

    def _told(self, dump: str) -> Told | None:
        """The times of an answered request; a file that cannot be had tells none, and the log's own are left."""
        try:
            return told_by(self._files.read(dump))
        except HostError:
            return None
