"""The vllm-omni engine: every form and feature as arguments and environment, on Ascend and on CUDA."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from anchormatrix.engines.base import EngineLimits, EngineRule, ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.launching import collective_env, filled_command, refuse_options, require
from anchormatrix.engines.timing import ServeLog
from anchormatrix.engines.vllm_omni.client import OmniClient
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.engines.vllm_omni.releases import release_of
from anchormatrix.engines.vllm_omni.switches import of_forms
from anchormatrix.errors import ConfigError
from anchormatrix.records.form import Form
from anchormatrix.records.settings.values import ANCHOR, DeviceKind, Tier
from anchormatrix.records.settings.whole import Settings

_OFFLOAD_FLAGS = {
    "cpu-offload": "--enable-cpu-offload",
    "layerwise-offload": "--enable-layerwise-offload",
    "distributed-layerwise-offload": "--enable-distributed-layerwise-offload",
}
_MASK_PLACE = "{mask_chunks}"
_CARDS_PLACE = "{cards}"
_STEPWISE = "--step-execution"
_MINDIE_USERS = ("RAINFUSION_ATTN", "--diffusion-kv-cache-dtype")
_TOLD_APART = 4  # steps: one that begins, one that ends, and two between that are alike
# Without it a form on one card runs in the HTTP server's own process, others in workers (0.30.0,
# diffusion/executor/abstract.py:37-60): the same conditions for all.
_WORKERS = ("--distributed-executor-backend", "mp")
# By the names under which they are served: models whose layers it splits over pipeline stages (PipelineParallelMixin),
# and models whose sequence it pads (auto_pad in their _sp_plan).
_PIPELINED = re.compile(r"wan-?2\.?[12].*(?:t2v|i2v)", re.IGNORECASE)
_PADDED = re.compile(
    r"wan-?2|qwen-?image|flux\.?2|hunyuan-?(?:video|image)|glm-?image|omnigen2|ernie|cosmos|boogu|sdxl|xl-base",
    re.IGNORECASE,
)
_PLACES = {
    EngineRule.PIPELINE: "splits the layers of Wan's text-to-video and image-to-video pipelines only "
    "(diffusion/distributed/pipeline_parallel.py:75)",
    EngineRule.AG: "(diffusion/data.py:365)",
    EngineRule.TENSOR: "(vLLM's distributed/utils.py: divide)",
    EngineRule.HEADS: "strict Ulysses (diffusion/attention/parallel/ulysses.py:512)",
    EngineRule.SEQUENCE: "sequence parallelism (diffusion/hooks/sequence_parallel.py:369, :486)",
    EngineRule.RING: "(diffusion/attention/layer.py:593, parallel/ring.py:206)",
}


class VllmOmni:
    """Launches of vllm-omni.

    ``engine.extra_args`` and ``engine.env`` may contain ``{mask_chunks}``: vllm-omni itself has no switch for
    communication masking, so a plug-in's switch is named there. An element ``{env}`` of ``engine.command`` becomes
    ``--env NAME=VALUE`` for every variable: containers do not inherit the environment.
    """

    name = "vllm-omni"

    def __init__(self, settings: Settings, version: str = "") -> None:
        refuse_options(settings.engine)
        if word := of_forms(settings.engine.extra_args):
            todo = "leave it out and name it in matrix.forms"
            raise ConfigError(f"{word} is for a form to name", where="engine.extra_args", todo=todo)
        self._engine = settings.engine
        self._workload = settings.workload
        self._capture = settings.capture
        self._device = settings.device.kind
        self._release = release_of(version)
        self.caution = self._release.caution

    def limits(self) -> EngineLimits:
        """See :class:`~anchormatrix.engines.base.Engine`. ``--ulysses-mode advanced_uaa`` pads heads and sequence."""
        uneven = "advanced_uaa" in " ".join(self._engine.extra_args)
        return EngineLimits(
            release=self._release.name,
            degrees=tuple(self._known_degrees()),
            ag_with_ulysses=False,
            pads_heads=uneven,
            pads_sequence=uneven or bool(_PADDED.search(self._engine.model)),
            places=_PLACES,
        )

    def packages(self) -> Mapping[str, str]:
        """MindIE SD, for what it computes on NPUs (0.30.0, ``diffusion/attention/backends/rainfusion_attn.py:148`` and
        ``flash_attn.py:543``)."""
        if self._device != DeviceKind.ASCEND:
            return {}
        given = " ".join(self._engine.extra_args)
        uses = next((word for word in _MINDIE_USERS if word in given), "")
        return {"mindiesd": uses} if uses else {}

    def refusal(self, form: Form) -> str | None:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        if not self._release.has_stage_lines:
            return f"{self._release.name} logs no stage times (0.18 is the first that does): nothing can be measured"
        if form.offload == "distributed-layerwise-offload" and not self._release.has_gather:
            return f"{self._release.name} has no {form.offload}: 0.26 is the first that does"
        if form.offload == "distributed-layerwise-offload" and form.sequence_degree == 1:
            return "distributed layerwise offload shares weights over the sequence group, and the form has none"
        if form.mask_chunks > 1 and not self._has_mask_switch():
            return (
                f"vllm-omni has no switch for communication masking; name the plug-in's switch with {_MASK_PLACE} in "
                "engine.extra_args or engine.env"
            )
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
        """See :class:`~anchormatrix.engines.base.Engine`.

        Text encoder and VAE are as the engine has them: splitting them stops some pipelines and changes what others
        decode (tiling), so that is for ``engine.extra_args``, where ``{cards}`` stands for the form's number of cards.
        """
        require(self, form)
        env = {
            "PYTHONUNBUFFERED": "1",  # a measured line must not wait in a buffer
            **self._device_env(),
            **visible_env,
            **{key: self._filled(value, form) for key, value in self._engine.env.items()},
        }
        profiler = ["--profiler-config", self._profiler_config(capture_dir, late_steps)] if capture_dir else []
        argv = [
            *filled_command(self._engine.command, env),
            *("serve", self._engine.model, "--omni", "--host", "127.0.0.1", "--port", str(port)),
            *self._degrees(form),
            *(_WORKERS if self._release.has_one_card_in_process else ()),
            "--enable-diffusion-pipeline-profiler",
            *profiler,
            *([_OFFLOAD_FLAGS[form.offload]] if form.offload else []),
            *(self._filled(argument, form) for argument in self._engine.extra_args),
        ]
        return ServeCommand(tuple(argv), env)

    def client(self, url: str, files: ServerFiles) -> Client:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        engine = self._engine
        return OmniClient(url, self._workload, engine.model, request_timeout_s=engine.request_timeout_s)

    def read(self, text: str, responses: Sequence[Response] = ()) -> ServeLog:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return parse_serve_log(text, responses, switches=self._engine.extra_args)

    def expected_groups(self, form: Form) -> dict[str, int]:
        """See :class:`~anchormatrix.engines.base.Engine`."""
        return expected_groups(form)

    def capture_refusal(self, tier: Tier) -> str:
        """The profiler counts requests, not steps, unless the engine is asked for one step at a time.

        0.30.0 calls ``profiler.step()`` once a request, with ``--step-execution`` once a denoise step
        (``diffusion/worker/diffusion_worker.py:697-741``), and ``/start_profile`` waits for a request to end.
        """
        if tier is ANCHOR and _STEPWISE not in self._engine.extra_args:
            return f"vllm-omni profiles whole requests: a late step needs {_STEPWISE} in engine.extra_args"
        return ""

    def capture_request_steps(self, few: int) -> int:
        """The profiler covers the whole request, so the request is as short as the capture shall be; but its steps are
        told apart by their repetition, unless each is annotated."""
        if _STEPWISE in self._engine.extra_args:
            return min(few, self._capture.steps)
        return max(_TOLD_APART, self._capture.steps)

    def _known_degrees(self) -> Iterable[str]:
        """The kinds of parallelism that the release has, for the model that it serves."""
        yield from ("tp", "usp", "ring")
        if self._release.has_gather:
            yield "ag"
        yield "cfg"
        if self._release.has_pipeline and _PIPELINED.search(self._engine.model):
            yield "pp"

    def _degrees(self, form: Form) -> Iterable[str]:
        """Degrees a release may not know yet are named only when they are used."""
        yield from ("--num-gpus", str(form.cards), "--tensor-parallel-size", str(form.tp))
        yield from ("--usp", str(form.usp), "--ring", str(form.ring))
        for flag, degree in (
            ("--allgather-degree", form.ag),
            ("--cfg-parallel-size", form.cfg),
            ("--pipeline-parallel-size", form.pp),
        ):
            if degree > 1:
                yield from (flag, str(degree))

    def _profiler_config(self, directory: str, late_steps: int) -> str:
        config = {
            "profiler": "torch",
            "torch_profiler_dir": directory,
            "torch_profiler_with_stack": False,
            # 0.30.0 packs in the background, after /stop_profile has answered (diffusion/profiler/
            # omni_torch_profiler.py:220), and prints a table of all operators by default (vllm/config/profiler.py)
            "torch_profiler_use_gzip": False,
            "torch_profiler_dump_cuda_time_total": False,
        }
        late = {"delay_iterations": max(0, late_steps - self._capture.steps), "max_iterations": self._capture.steps}
        return json.dumps(config | late if late_steps else config)

    def _device_env(self) -> dict[str, str]:
        return {
            "VLLM_OMNI_VIDEO_SYNC_TIMEOUT": f"{self._engine.request_timeout_s:.0f}",
            **collective_env(self._device),
            **_library_env(self._device),
        }

    def _has_mask_switch(self) -> bool:
        return any(_MASK_PLACE in text for text in (*self._engine.extra_args, *self._engine.env.values()))

    @staticmethod
    def _filled(text: str, form: Form) -> str:
        return text.replace(_MASK_PLACE, str(form.mask_chunks)).replace(_CARDS_PLACE, str(form.cards))


def _library_env(device: DeviceKind) -> dict[str, str]:
    """Variables of MindIE SD, which quantises and computes attention on NPUs: it tells what it did at this level only
    (3.1.0, ``utils/env.py:64-74``), and a shell may have silenced it."""
    return {"MINDIE_LOG_LEVEL": "info", "MINDIE_LOG_TO_STDOUT": "true"} if device == DeviceKind.ASCEND else {}


def expected_groups(form: Form) -> dict[str, int]:
    """Group sizes of a form as the start-up log names them; ``world`` is the number of ranks."""
    return {
        "world": form.cards,
        "sp_size": form.sequence_degree,
        "ulysses_degree": form.usp,
        "ring_degree": form.ring,
        "allgather_degree": form.ag,
        "tp_size": form.tp,
        "cfg_size": form.cfg,
        "pp_size": form.pp,
        "dp_size": 1,  # too few degrees for the cards become replicas without a word (diffusion/data.py:453-488)
    }
