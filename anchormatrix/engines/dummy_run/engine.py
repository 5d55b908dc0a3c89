"""The dummy run as an engine: vllm-omni's command line with another command in front and less to combine."""

from __future__ import annotations

import json

from anchormatrix.engines.vllm_omni import VllmOmni
from anchormatrix.records.form import Form


class DummyRun(VllmOmni):
    """Launches of ``python -m anchormatrix.engines.dummy_run``; ``engine.model`` names one of its configurations.

    Which combinations diffusers and torch can split is left to them: a server that they refuse ends at start-up with
    their message, which is the evidence of a form that did not run through.
    """

    name = "dummy-run"

    def refusal(self, form: Form) -> str | None:
        """What the engine has no flag for at all."""
        if form.pp > 1:
            return "the dummy run has no pipeline parallelism"
        if form.ag > 1:
            return "the dummy run has no all-gather-KV attention"
        if form.offload:
            return f"the dummy run has no {form.offload}: its small model stays on the card"
        return super().refusal(form)

    def capture_request_steps(self, few: int) -> int:
        """The server skips the first step of the captured request, and captures the configured number after it."""
        return self._capture.steps + 1

    def _profiler_config(self, directory: str) -> str:
        return json.dumps(
            {"torch_profiler_dir": directory, "delay_iterations": 1, "max_iterations": self._capture.steps}
        )

    def _device_env(self) -> dict[str, str]:
        return {}
