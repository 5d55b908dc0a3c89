"""The dummy run as an engine: vllm-omni's command line with another command in front and less to combine."""

from __future__ import annotations

import json
from collections.abc import Mapping

from anchormatrix.engines.base import EngineLimits, EngineRule
from anchormatrix.engines.vllm_omni.launch import VllmOmni
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import Tier
from anchormatrix.records.settings.whole import Settings


class DummyRun(VllmOmni):
    """Launches of ``python -m anchormatrix.engines.dummy_run``; ``engine.model`` names one of its configurations.

    Which combinations torch can split is left to it: a server that it refuses ends at start-up with its message, which
    is the evidence of a form that did not run through.
    """

    name = "dummy-run"

    def __init__(self, settings: Settings, version: str = "") -> None:
        """The version told is that of its environment, torch and diffusers; its server is this project's own."""
        super().__init__(settings)

    def limits(self) -> EngineLimits:
        """Diffusers' parallel attention has neither pipeline stages nor all-gather-KV, and pads nothing."""
        return EngineLimits(
            release="dummy run",
            degrees=("tp", "usp", "ring", "cfg"),
            places={
                EngineRule.HEADS: "(diffusers' models/attention_dispatch.py)",
                EngineRule.SEQUENCE: "(diffusers' hooks/context_parallel.py: EquipartitionSharder)",
            },
        )

    def packages(self) -> Mapping[str, str]:
        """Its environment holds all it needs."""
        return {}

    def refusal(self, form: Form) -> str | None:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        if form.offload:
            return f"the dummy run has no {form.offload}: its small model stays on the card"
        return super().refusal(form)

    def capture_request_steps(self, few: int) -> int:
        """The server skips the first step of the captured request, and captures the configured number after it."""
        return self._capture.steps + 1

    def capture_refusal(self, tier: Tier) -> str:
        """The profiler counts denoise steps."""
        return ""

    def _profiler_config(self, directory: str, late_steps: int) -> str:
        steps = self._capture.steps
        delay = max(0, late_steps - steps) if late_steps else 1
        return json.dumps({"torch_profiler_dir": directory, "delay_iterations": delay, "max_iterations": steps})

    def _device_env(self) -> dict[str, str]:
        return {}
