"""The SGLang engine: every form and feature as arguments and environment of ``sglang serve``, its diffusion part.

Checked against 0.5.23 (places are below ``sglang/multimodal_gen/``). What is not said there is automatic, from degrees
to offload and warm-up, so everything is said: ``--performance-mode manual`` also keeps a finished warm-up from moving
weights (``runtime/server_args/auto_tune.py:64``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anchormatrix.engines.base import EngineLimits, EngineRule, ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.launching import collective_env, filled_command, ports_beside, refuse_options, require
from anchormatrix.engines.releases import caution, nearest
from anchormatrix.engines.sglang.client import SglangClient
from anchormatrix.engines.sglang.parse import parse_log
from anchormatrix.engines.timing import ServeLog
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import ANCHOR, DeviceKind, Tier
from anchormatrix.records.settings.whole import Settings

_RELEASE = "SGLang diffusion 0.5.23"
_KNOWN = ((0, 5, 23),)
_PLACES = {
    EngineRule.AG: "(runtime/server_args/server_args.py:1768)",
    EngineRule.HEADS: "(runtime/layers/usp.py:389)",
    EngineRule.SEQUENCE: "(configs/pipeline_configs/base.py:1270)",
    EngineRule.RING: "(runtime/layers/attention/layer.py:890)",
}
_CORES = "ANCHORMATRIX_CARD_CORES"


class Sglang:
    """Launches of ``sglang serve``. ``engine.model`` is the model's path on the host or its name; ``{env}`` in
    ``engine.command`` becomes ``--env NAME=VALUE`` for every variable, as containers need it."""

    name = "sglang"

    def __init__(self, settings: Settings, version: str = "") -> None:
        refuse_options(settings.engine)
        self._engine = settings.engine
        self._workload = settings.workload
        self._capture = settings.capture
        self._device = settings.device.kind
        taken, same = nearest(version, _KNOWN)
        self.caution = caution("SGLang", version, taken, same=same) if version else ""

    def limits(self) -> EngineLimits:
        """See :class:`~anchormatrix.engines.base.Engine`. On a CPU attention has no log-sum-exp, which a ring needs."""
        degrees = ("tp", "usp", "ag", "cfg") if self._device == DeviceKind.CPU else ("tp", "usp", "ring", "ag", "cfg")
        return EngineLimits(
            release=_RELEASE,
            degrees=degrees,
            ag_with_ulysses=False,
            pads_heads=False,
            pads_sequence=True,
            # NPUs write by a handler of their own, on every rank (runtime/utils/profiler.py:87, :152).
            captured_ranks=None if self._device == DeviceKind.ASCEND else 1,
            places=_PLACES,
        )

    def packages(self) -> Mapping[str, str]:
        """None beside its own."""
        return {}

    def refusal(self, form: Form) -> str | None:
        """See :class:`~anchormatrix.engines.base.Engine`.

        Masking is the exchange of head groups pipelined against attention: of Ulysses alone
        (``runtime/layers/attention/layer.py:1668-1700``). A CPU's ranks are all tensor ranks or none
        (``runtime/server_args/server_args.py:1669``).
        """
        if form.offload == "distributed-layerwise-offload":
            return f"{_RELEASE} has no {form.offload}: each rank streams whole layers"
        if form.mask_chunks > 1 and (form.usp == 1 or form.ring > 1):
            return f"{_RELEASE} masks the exchange of Ulysses, without ring: {form.name} has none"
        if self._device == DeviceKind.CPU and form.tp > 1 and form.cards > form.tp:
            return f"on a CPU {_RELEASE} combines tensor parallelism with nothing"
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
        """See :class:`~anchormatrix.engines.base.Engine`."""
        require(self, form)
        env = {
            "PYTHONUNBUFFERED": "1",  # a measured line must not wait in a buffer
            "SGLANG_DIFFUSION_SYNC_STAGE_PROFILING": "1",  # else stages and steps are the times of their launches
            # -1, the default, masks as it sees fit; 1 is off.
            "SGLANG_DIFFUSION_ULYSSES_PIPELINE_GROUPS": str(form.mask_chunks),
            **({"SGLANG_DIFFUSION_TORCH_PROFILER_DIR": capture_dir} if capture_dir else {}),
            **collective_env(self._device),
            **self._cpu_env(visible_env),
            **visible_env,
            **self._engine.env,
        }
        # Strict: a taken port must not silently be another. The next one up is taken for offline jobs; by default every
        # server of a host has the same rendezvous.
        scheduler, master = ports_beside(port, 2)
        argv = [
            *filled_command(self._engine.command, env),
            *("serve", "--model-type", "diffusion", "--model-path", self._engine.model),
            *("--host", "127.0.0.1", "--port", str(port), "--strict-ports"),
            *("--scheduler-port", str(scheduler), "--master-port", str(master)),
            *_degrees(form),
            *("--performance-mode", "manual", "--warmup-mode", "off"),
            *_residency(form),
            "--disable-conditioning-cache",  # else only the first request of a prompt encodes it
            *("--output-path", ""),  # an image comes in the answer, a video goes where its request says
            # A poll of a job must not write a line into the request's bar.
            *("--uvicorn-access-log-exclude-prefixes", "/v1/videos/", "/health"),
            *self._engine.extra_args,
        ]
        return ServeCommand(tuple(argv), env)

    def client(self, url: str, files: ServerFiles) -> Client:
        """See :class:`~anchormatrix.engines.base.Engine`. The noise is drawn on a GPU unless the request says else."""
        device = {DeviceKind.CPU: "cpu", DeviceKind.ASCEND: "npu"}.get(self._device)
        always = {"generator_device": device} if device else {}
        return SglangClient(url, self._workload, files, always=always, request_timeout_s=self._engine.request_timeout_s)

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
            "allgather_degree": form.ag,
            "tp_size": form.tp,
            "cfg_size": form.cfg,
            "dp_size": 1,
        }

    def capture_refusal(self, tier: Tier) -> str:
        """The profiler of a request begins with its second step (``runtime/utils/profiler.py:96-107``)."""
        return f"{_RELEASE} captures the first steps of a request, never its last" if tier is ANCHOR else ""

    def capture_request_steps(self, few: int) -> int:
        """The first step is the profiler's warm-up; the configured number after it is captured."""
        return self._capture.steps + 1

    def _cpu_env(self, visible_env: Mapping[str, str]) -> dict[str, str]:
        """A CPU: the platform by name, and as many threads a rank as its card has cores."""
        if self._device != DeviceKind.CPU:
            return {}
        cores = visible_env.get(_CORES, "").partition(";")[0]
        threads = {"OMP_NUM_THREADS": str(cores.count(",") + 1)} if cores else {}
        return {"SGLANG_DIFFUSION_PLATFORM_OVERRIDE": "cpu", **threads}


def _degrees(form: Form) -> list[str]:
    """Every degree; all-gather-KV excludes the names of the other two (``runtime/server_args/server_args.py:1768``)."""
    return [
        *("--num-gpus", str(form.cards), "--tp-size", str(form.tp), "--sp-degree", str(form.sequence_degree)),
        *("--ulysses-degree", str(form.usp), "--ring-degree", str(form.ring), "--kv-gather-degree", str(form.ag)),
        *("--cfg-parallel-size", str(form.cfg), "--dp-size", "1"),
    ]


def _residency(form: Form) -> list[str]:
    """Where weights stay: on the card, unless the form offloads the transformer and the text encoder."""
    whole, layers = form.offload == "cpu-offload", form.offload == "layerwise-offload"
    switches = {
        "--dit-cpu-offload": whole,
        "--dit-layerwise-offload": layers,
        "--text-encoder-cpu-offload": whole,
        "--image-encoder-cpu-offload": False,
        "--vae-cpu-offload": False,
        "--use-fsdp-inference": False,
        "--enable-torch-compile": False,
        "--enable-breakable-cuda-graph": False,
    }
    return [word for flag, on in switches.items() for word in (flag, str(on).lower())]
