"""Requests to the server: one POST, answered with a picture."""

from __future__ import annotations

from anchormatrix.engines.http import HttpClient, Output, media_type
from anchormatrix.records.settings.things import WorkloadSettings


class TemplateClient(HttpClient):
    """A client of one server, for one workload. Readiness is ``GET /health``, as the base class asks it."""

    def __init__(self, base_url: str, workload: WorkloadSettings, *, request_timeout_s: float) -> None:
        super().__init__(base_url, request_timeout_s=request_timeout_s)
        self._workload = workload

    def ask(self, steps: int) -> Output:
        """One output. An answer of 400 and above is refused by ``post``."""
        work = self._workload
        body = {"prompt": work.prompt, "seed": work.seed, "width": work.width, "height": work.height, "steps": steps}
        answer = self.post("/generate", json=body)
        return Output(answer.content, media_type(answer))

    def start_profile(self) -> str | None:
        """What is wrong with a capture; the engine refused it already."""
        return "this server has no profiler"

    def stop_profile(self) -> str | None:
        """See :meth:`start_profile`."""
        return self.start_profile()
