"""The LightX2V engine: a form as ranks of torchrun and a configuration file (commit f8aee98, 21 August 2026; places
are below ``lightx2v/``).

No release is published: the package calls itself 0.1.0 since its first day, so the commit is what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.engines.base import FILES_PLACE, EngineLimits, EngineRule, ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.launching import collective_env, filled_command, ports_beside, require
from anchormatrix.engines.lightx2v.client import LightX2VClient
from anchormatrix.engines.lightx2v.models import COMMIT, RELEASE, UNSEEDED, UNSEEDED_PLACE, why_not
from anchormatrix.engines.lightx2v.options import FILE, check_options, configuration, guided, task_of
from anchormatrix.engines.lightx2v.parse import parse_log
from anchormatrix.engines.timing import ServeLog
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import DeviceKind, Tier
from anchormatrix.records.settings.whole import Settings

_PLACES = {
    EngineRule.DEGREES: "(utils/set_config.py:411, models/networks/qwen_image/model.py:62, :111)",
    EngineRule.TENSOR: "(no models/networks/qwen_image or z_image file reads tensor_parallel)",
    EngineRule.RING: "(common/ops/attn/ring_attn.py:65, :206: image tokens alone, and these models join the prompt's)",
    EngineRule.HEADS: "(common/ops/attn/ulysses_attn.py:385)",
    EngineRule.SEQUENCE: "(models/networks/qwen_image/model.py:80)",
}
_PLATFORMS = {DeviceKind.NVIDIA: "cuda", DeviceKind.ASCEND: "ascend_npu"}


class LightX2V:
    """Launches of ``torchrun -m lightx2v.server``: ``engine.command`` is torchrun, and ``{env}`` in it becomes
    ``--env NAME=VALUE`` for every variable, as containers need it. ``engine.model`` is the model's folder on the host,
    ``engine.options.model_cls`` its class."""

    name = "lightx2v"

    def __init__(self, settings: Settings, version: str = "") -> None:
        check_options(settings.engine.options)
        known = not version or COMMIT in version
        self.caution = "" if known else f"LightX2V {version} is not known here: taken as its commit {COMMIT}"
        self._engine = settings.engine
        self._workload = settings.workload
        self._device = settings.device.kind
        self._steps = settings.matrix.tiers.few
        self._not_compared = settings.outputs.by_design
        self._model_class = str(settings.engine.options["model_cls"])

    def limits(self) -> EngineLimits:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return EngineLimits(
            release=RELEASE,
            degrees=("usp", "cfg"),
            pads_heads=False,
            pads_sequence=True,
            places=_PLACES,
        )

    def packages(self) -> Mapping[str, str]:
        """None beside its own."""
        return {}

    def refusal(self, form: Form) -> str | None:
        """See :class:`~anchormatrix.engines.base.Engine`.

        Offload of a whole model happens in the first and the last step of a request
        (``models/networks/qwen_image/model.py:97``, ``:151``): its steps are not one another's like.
        """
        if self._device not in _PLATFORMS:
            return f"{RELEASE} has no platform for device.kind {self._device}"
        if reason := why_not(self._model_class):
            return reason
        if self._model_class == UNSEEDED and form.name not in self._not_compared:
            return (
                f"{RELEASE} seeds {UNSEEDED} for a server's first request alone ({UNSEEDED_PLACE}): its outputs cannot "
                "be compared; name the form in outputs.by_design"
            )
        if form.cfg > 1 and not guided(self._workload):
            return (
                f"guidance is off (workload.guidance_scale {self._workload.guidance_scale:g}): no branches to deal out"
            )
        if form.offload == "cpu-offload":
            return f"{RELEASE} moves the whole transformer in a request's first and last step: its steps are unequal"
        if form.offload == "distributed-layerwise-offload":
            return f"{RELEASE} has no {form.offload}: each rank streams whole blocks"
        if form.mask_chunks > 1:
            return f"{RELEASE} masks head by head (engine.options.parallel.seq_p_head_parallel), not in chunks"
        return None

    def serve_command(
        self,
        form: Form,
        *,
        port: int,
        visible_env: Mapping[str, str],
        capture_dir: str | None,
        late_steps: int = 0,
    ) -> ServeCommand:
        """See :class:`~anchormatrix.engines.base.Engine`. The server has no profiler: ``capture_dir`` is not used."""
        require(self, form)
        env = {
            "PYTHONUNBUFFERED": "1",  # a measured line must not wait in a buffer
            "PROFILING_DEBUG_LEVEL": "1",  # the lines with times (utils/profiler.py:316)
            "PLATFORM": _PLATFORMS[self._device],
            "LIGHTX2V_CACHE_DIR": f"{FILES_PLACE}/lightx2v",  # else outputs go beside the installed package
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",  # as torchrun sets it for several ranks, and not for one
            **collective_env(self._device),
            **visible_env,
            **self._engine.env,
        }
        # Its metrics have a port of their own, 8001 for every server unless it is said (server/main.py:59).
        (metrics,) = ports_beside(port, 1)
        argv = [
            *filled_command(self._engine.command, env),
            # A rendezvous on a free port of the loopback: the usual 29500 is everybody's.
            *("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(form.cards)),
            *("-m", "lightx2v.server", "--model_path", self._engine.model, "--model_cls", self._model_class),
            *("--host", "127.0.0.1", "--port", str(port)),
            # Arguments that its parser does not know are taken as pairs (server/__main__.py:20).
            *("--task", str(self._engine.options.get("task", task_of(self._workload)))),
            *("--config_json", f"{FILES_PLACE}/{FILE}", "--metric_port", str(metrics)),
            *self._engine.extra_args,
        ]
        text = configuration(form, self._workload, self._engine.options, steps=self._steps)
        return ServeCommand(tuple(argv), env, {FILE: text})

    def client(self, url: str, files: ServerFiles) -> Client:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return LightX2VClient(url, self._workload, request_timeout_s=self._engine.request_timeout_s)

    def read(self, text: str, responses: Sequence[Response] = ()) -> ServeLog:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return parse_log(text, responses)

    def expected_groups(self, form: Form) -> dict[str, int]:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return {
            "world": form.cards,
            "sp_size": form.sequence_degree,
            "ulysses_degree": form.usp,
            "ring_degree": form.ring,
            "tp_size": form.tp,
            "cfg_size": form.cfg,
        }

    def capture_refusal(self, tier: Tier) -> str:
        """Its profiler wraps a call by hand, in the source (``models/runners/qwen_image/qwen_image_runner.py:424``)."""
        return f"{RELEASE} has no profiler that a running server can be asked for"

    def capture_request_steps(self, few: int) -> int:
        """Nothing is captured."""
        return few
