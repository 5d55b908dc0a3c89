"""What we send and read, held against vLLM-Omni itself: its argument parser, its request models, its logging calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from vllm_omni_env import in_vllm_omni, needs_vllm_omni

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.vllm_omni.client import OmniClient
from anchormatrix.engines.vllm_omni.launch import VllmOmni
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.proof import prove
from anchormatrix.records.form import parse_form

pytestmark = [pytest.mark.real_engine, needs_vllm_omni, pytest.mark.xdist_group("vllm-omni")]
ROOT = Path(__file__).resolve().parents[3]
SETTINGS = load_settings(DEFAULT_FILE)
EXAMPLES = ("ascend-local", "ascend-ssh", "nvidia-local")
# num_gpus, tensor, Ulysses, ring, all-gather-KV, CFG, pipeline
FORMS = {
    "tp1-usp1": [1, 1, 1, 1, 1, 1, 1],
    "tp2-usp1": [2, 2, 1, 1, 1, 1, 1],
    "tp1-usp2": [2, 1, 2, 1, 1, 1, 1],
    "tp1-usp2-ring2": [4, 1, 2, 2, 1, 1, 1],
    "tp1-usp1-ag2": [2, 1, 1, 1, 2, 1, 1],
    "tp1-usp4-cfg2": [8, 1, 4, 1, 1, 2, 1],
    "tp1-usp2-pp2": [4, 1, 2, 1, 1, 1, 2],
    "tp1-usp2+cpu-offload": [2, 1, 2, 1, 1, 1, 1],
    "tp1-usp2+layerwise-offload": [2, 1, 2, 1, 1, 1, 1],
    "tp1-usp2+distributed-layerwise-offload": [2, 1, 2, 1, 1, 1, 1],
}
DEGREES = [
    "num_gpus",
    "tensor_parallel_size",
    "ulysses_degree",
    "ring_degree",
    "allgather_degree",
    "cfg_parallel_size",
    "pipeline_parallel_size",
]
OFFLOADS = ["enable_cpu_offload", "enable_layerwise_offload", "enable_distributed_layerwise_offload"]
SWITCHES = {
    ("--cache-backend", "tea_cache"): ("cache_backend", "tea_cache"),
    ("--diffusion-attention-backend", "FLASH_ATTN"): ("diffusion_attention_backend", "FLASH_ATTN"),
    ("--quantization", "fp8"): ("quantization", "fp8"),
    ("--use-hsdp",): ("use_hsdp", True),
    ("--ulysses-a2a-permute",): ("ulysses_a2a_permute", True),
    ("--ulysses-mode", "advanced_uaa"): ("ulysses_mode", "advanced_uaa"),
    ("--step-execution",): ("step_execution", True),
    ("--enforce-eager",): ("enforce_eager", True),
    ("--text-encoder-tp-size", "{cards}"): ("text_encoder_tp_size", 2),
    ("--vae-patch-parallel-size", "{cards}"): ("vae_patch_parallel_size", 2),
    ("--diffusion-kv-cache-dtype", "fp8"): ("diffusion_kv_cache_dtype", "fp8"),
}
# As `vllm serve … --omni` takes its arguments (entrypoints/cli/main.py); what it refuses comes back as its text
PARSE = """
import contextlib, io, json, sys
import vllm_omni.entrypoints.cli.serve as serve
from vllm_omni.utils.tracking_parser import TrackingArgumentParser
serve._ensure_vllm_platform()
parser, (command,) = TrackingArgumentParser(), serve.cmd_init()
command.subparser_init(parser.add_subparsers(dest="subparser"))
def parsed(argv):
    sys.argv, said = ["vllm", *argv], io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(argv)
            command.validate(args)
    except (SystemExit, ValueError) as error:
        return said.getvalue().strip().splitlines()[-1] if said.getvalue() else str(error)
    return vars(args)
print(json.dumps([parsed(argv) for argv in json.load(sys.stdin)], default=str))
"""
# Bodies as the server takes them: images by its model; videos by the fields of its form, of which the values go through
# the model that the form makes (FastAPI's reading of a form is not run)
VALIDATE = """
import inspect, json, sys
from pydantic import TypeAdapter
from vllm_omni.entrypoints.openai.protocol.images import ImageGenerationRequest
from vllm_omni.entrypoints.openai.protocol.videos import VideoGenerationRequest
from vllm_omni.entrypoints.openai.video.generation.helpers import _parse_video_form
image, form = json.load(sys.stdin)
asked = ImageGenerationRequest.model_validate(image)
fields = inspect.signature(_parse_video_form).parameters
taken = {name: json.loads(value) if name == "extra_params" else value for name, value in form.items()}
video = VideoGenerationRequest.model_validate(taken)
print(json.dumps([
    sorted(set(image) - set(ImageGenerationRequest.model_fields)), sorted(set(form) - set(fields)),
    [getattr(asked, name) for name in "size num_inference_steps guidance_scale seed negative_prompt".split()],
    [getattr(video, name) for name in
     "width height num_frames fps num_inference_steps seed guidance_scale flow_shift extra_params".split()],
]))
"""
# Each logging call as the package makes it, found in its module by its text and run with the real logger; the stages
# by the profiler itself
SPEAK = """
import ast, importlib.util, io, json, logging, sys, types
from pathlib import Path
from vllm.logger import init_logger
from vllm_omni.diffusion.profiler import diffusion_pipeline_profiler as profiling
profiling.current_omni_platform = types.SimpleNamespace(is_available=lambda: False)  # no device to wait for
said = io.StringIO()
def stream():
    for logger in [logging.getLogger(), *map(logging.getLogger, ("vllm", "vllm_omni"))]:
        for handler in logger.handlers:
            handler.setStream(said)
def say(module, needle, names):
    path = Path(importlib.util.find_spec("vllm_omni").origin).parent / (module.replace(".", "/") + ".py")
    tree = ast.parse(path.read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
             and ast.unparse(node.func.value) == "logger" and needle in ast.unparse(node)]
    logger = init_logger("vllm_omni." + module)
    def namespace(value):
        if not isinstance(value, dict):
            return value
        return types.SimpleNamespace(**{key: namespace(one) for key, one in value.items()})
    known = {name: namespace(value) for name, value in names.items()}
    eval(compile(ast.Expression(calls[0]), str(path), "eval"), {"logger": logger, **known})
class Part:
    def forward(self): return sum(range(200000))
    def decode(self): return sum(range(200000))
class WanPipeline(profiling.DiffusionPipelineProfilerMixin):
    def __init__(self): self.text_encoder, self.vae = Part(), Part()
    def diffuse(self): return sum(range(2000000))
    def forward(self):
        self.text_encoder.forward(); self.diffuse(); self.vae.decode()
stream()
pipeline, durations = WanPipeline(), {}
for step in json.load(sys.stdin):
    if step == "set up":
        pipeline.setup_diffusion_pipeline_profiler(enable_diffusion_pipeline_profiler=True)
    elif step == "run":
        pipeline.forward()
        durations = pipeline.stage_durations
    else:
        say(*step)
print(json.dumps([said.getvalue(), durations]))
"""


def argv_of(form: str, model: Path, extra: tuple[str, ...] = (), capture: str | None = None) -> list[str]:
    engine = VllmOmni(replace(SETTINGS, engine=replace(SETTINGS.engine, model=str(model), extra_args=extra)))
    made = engine.serve_command(parse_form(form), port=41000, visible_env={}, capture_dir=capture).argv
    return list(made[made.index("serve") :])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint's folder, as far as the parser looks into it."""
    folder = tmp_path / "Wan2.2-T2V-A14B-Diffusers"
    folder.mkdir()
    (folder / "model_index.json").write_text('{"_class_name": "WanPipeline", "_diffusers_version": "0.40.0"}')
    return folder


def test_every_form_s_arguments_are_accepted_and_mean_what_they_say(model: Path) -> None:
    parsed = in_vllm_omni(PARSE, [argv_of(form, model) for form in FORMS])
    for (form, degrees), found in zip(FORMS.items(), parsed, strict=True):
        assert isinstance(found, dict), f"{form}: {found}"
        assert [found[name] or 1 for name in DEGREES] == degrees, form
        offload = form.partition("+")[2].replace("-", "_")
        assert [name for name in OFFLOADS if found[name]] == ([f"enable_{offload}"] if offload else [])
        assert (found["model_tag"], found["host"], found["port"]) == (str(model), "127.0.0.1", 41000)
        assert found["enable_diffusion_pipeline_profiler"] is True
        assert (found["omni"], found["distributed_executor_backend"]) == (True, "mp")


def test_every_switch_and_the_profiler_s_configuration_are_accepted(model: Path) -> None:
    argvs = [argv_of("tp1-usp2", model, switch) for switch in SWITCHES]
    *parsed, captured = in_vllm_omni(PARSE, [*argvs, argv_of("tp1-usp2", model, (), "/scratch/capture")])
    for (switch, (name, value)), found in zip(SWITCHES.items(), parsed, strict=True):
        assert isinstance(found, dict), f"{switch}: {found}"
        assert found[name] == value
    assert isinstance(captured, dict), captured
    assert "/scratch/capture" in str(captured["profiler_config"])


def test_every_example_s_arguments_are_accepted(model: Path) -> None:
    argvs = []
    for example in EXAMPLES:
        settings = load_settings(ROOT / "config" / "examples" / f"{example}.yaml")
        named = replace(settings, engine=replace(settings.engine, model=str(model)))
        made = VllmOmni(named).serve_command(parse_form("tp1-usp2"), port=41000, visible_env={}, capture_dir=None)
        argvs.append(list(made.argv[made.argv.index("serve") :]))
    assert [isinstance(found, dict) or found for found in in_vllm_omni(PARSE, argvs)] == [True] * len(EXAMPLES)


def test_an_argument_that_the_engine_does_not_know_is_refused_by_its_parser(model: Path) -> None:
    given = [argv_of("tp1-usp2", model, ("--ulysses-mood", "x")), argv_of("tp1-usp2", model, ("--ulysses-mode", "no"))]
    unknown, wrong = in_vllm_omni(PARSE, given)
    assert "unrecognized arguments: --ulysses-mood x" in unknown
    assert "invalid choice: 'no'" in wrong


def client(**workload: Any) -> OmniClient:
    work = replace(SETTINGS.workload, width=832, height=480, seed=42, guidance_scale=4.0, **workload)
    return OmniClient("http://127.0.0.1:9", work, "served", request_timeout_s=1)


def test_every_request_validates_and_holds_no_field_that_the_engine_does_not_know() -> None:
    image = client(negative_prompt="fog", flow_shift=3.0, extra_params={"a": 1}).image_body(4)
    video = client(frames=81, fps=16, negative_prompt="fog", flow_shift=3.0, extra_params={"a": 1}).form_fields(4)
    assert in_vllm_omni(VALIDATE, [image, video]) == [
        [],
        [],
        ["832x480", 4, 4.0, 42, "fog"],
        [832, 480, 81, 16, 4, 42, 4.0, 3.0, {"a": 1}],
    ]


SAMPLING = {"num_inference_steps": 4, "guidance_scale": 4.0, "guidance_scale_2": None, "seed": 42}


def spoken(*steps: object) -> tuple[str, dict[str, float]]:
    """The log of these steps, and the stages told. A worker's name is put before its lines here, not by the engine."""
    text, told = in_vllm_omni(SPEAK, steps)
    lines = [line if "sampling params" in line else f"(DiffusionWorker_SP0 pid=7) {line}" for line in
             text.splitlines()]  # fmt: skip
    return "\n".join(lines) + "\n", told


def test_stages_of_the_profiler_itself_are_read_to_the_microsecond() -> None:
    asked = ["entrypoints.openai.serving_video", "Video sampling params", {"gen_params": SAMPLING}]
    text, told = spoken("set up", asked, "run")
    log = parse_serve_log(text)
    (timed,) = log.requests
    assert (timed.steps, log.spoiled, log.findings) == (4, {}, ())
    assert timed.diffuse_s == pytest.approx(told["WanPipeline.diffuse"], abs=1e-6)
    assert timed.forward_s == pytest.approx(told["WanPipeline.forward"], abs=1e-6)
    assert timed.decode_s == pytest.approx(told["WanPipeline.vae.decode"], abs=1e-6)
    assert timed.encode_s == pytest.approx(told["WanPipeline.text_encoder.forward"], abs=1e-6)
    assert any("tokenizer.forward" in remark for remark in log.remarks)


def test_a_split_counts_by_the_engine_s_own_words_and_is_taken_back_by_them() -> None:
    degrees = {"sp_size": 2, "mode": "ulysses", "attr": "transformer"}
    sizes = {"sp_config": {"ulysses_degree": 2, "ring_degree": 1}, "transformer": 1}
    applied, _ = spoken(["diffusion.registry", "Applying sequence parallelism to", degrees | sizes])
    told = parse_serve_log(applied).groups
    assert [told[name] for name in ("sp_size", "ulysses_degree", "ring_degree")] == [(2,), (2,), (1,)]
    denied, _ = spoken(["diffusion.registry", "SP hooks not applied", degrees])
    failures = prove(parse_serve_log(denied), {"sp_size": 2, "world": 1}).failures
    assert any(failure.startswith("sp_size 2 is not in effect") for failure in failures)


@pytest.mark.parametrize(
    ("switch", "step", "refuted", "proved"),
    [
        (
            ("--cache-backend", "cache_dit"),
            ["diffusion.cache.cachedit.backend", "enabled successfully on", {"pipeline_name": "WanPipeline"}],
            False,
            True,
        ),
        (
            ("--cache-backend", "tea_cache"),
            [
                "diffusion.cache.teacache.backend",
                "TeaCache applied with",
                {"teacache_config": {"rel_l1_thresh": 0.2, "transformer_type": "WanTransformer3DModel"}},
            ],
            False,
            True,
        ),
        (
            ("--cache-backend", "cache_dit"),
            [
                "diffusion.worker.diffusion_model_runner",
                "is not supported for",
                {"self": {"od_config": {"cache_backend": "cache_dit", "model_class_name": "P"}}},
            ],
            True,
            False,
        ),
        (
            ("--diffusion-attention-backend", "SAGE_ATTN"),
            [
                "diffusion.attention.selector",
                "Resolved diffusion attention backend",
                {"backend_name": "SAGE_ATTN", "role": "self", "role_category": "self", "source": "config"},
            ],
            False,
            True,
        ),
        (
            ("--step-execution",),
            ["diffusion.diffusion_engine", "[RequestBatch] engine init", {"od_config": {"max_num_seqs": 1}}],
            True,
            False,
        ),
        (
            ("--use-hsdp",),
            ["diffusion.distributed.hsdp", "HSDP applied to model", {"model": 1}],
            False,
            True,
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_switches_are_judged_by_the_engine_s_own_words(
    switch: tuple[str, ...], step: list[object], refuted: bool, proved: bool
) -> None:
    log = parse_serve_log(spoken(step)[0], switches=switch)
    assert (switch[0] in log.denied, switch[0] not in log.unproven and not refuted) == (refuted, proved)


def test_offload_is_read_from_the_engine_s_own_words() -> None:
    whole, _ = spoken(["diffusion.offloader.sequential_backend", "enable_omni_model_cpu_offload", {"pipeline": 1}])
    assert (found := parse_serve_log(whole).offload) and (found.kind, found.ranks) == ("cpu-offload", 1)
    refused, _ = spoken(["diffusion.offloader.sequential_backend", "No encoder modules found", {}])
    found = parse_serve_log(refused).offload
    assert found and found.refusal == "No encoder modules found, skipping model-level offloading"


def test_the_threshold_of_tea_cache_is_the_one_that_the_virtual_host_says() -> None:
    program = """
import json
from vllm_omni.diffusion.cache.teacache.config import TeaCacheConfig
print(json.dumps(TeaCacheConfig(transformer_type="QwenImageTransformer2DModel").rel_l1_thresh))
"""
    assert in_vllm_omni(program, None) == 0.2
