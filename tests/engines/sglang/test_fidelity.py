"""What we send and read, held against SGLang itself: its argument parser, its request models, its format strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sglang_env import Z_IMAGE, in_sglang, needs_sglang

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.client import Response, ServerFiles
from anchormatrix.engines.sglang.client import SglangClient
from anchormatrix.engines.sglang.dump import told_by
from anchormatrix.engines.sglang.launch import Sglang
from anchormatrix.engines.sglang.parse import parse_log
from anchormatrix.records.form import parse_form
from anchormatrix.records.requests import RequestStatus

pytestmark = [pytest.mark.real_engine, needs_sglang, pytest.mark.xdist_group("sglang")]
ROOT = Path(__file__).resolve().parents[3]
SETTINGS = load_settings(ROOT / "config" / "examples" / "cpu-sglang.yaml")
FORMS = (
    "tp1-usp1",
    "tp2-usp1",
    "tp1-usp2",
    "tp1-usp2-ring2",
    "tp1-usp1-ag2",
    "tp1-usp1-cfg2",
    "tp1-usp2-cfg2",
    "tp1-usp2+mask4",
    "tp1-usp2+cpu-offload",
    "tp1-usp2+layerwise-offload",
)
# As `sglang serve --model-type diffusion` takes its arguments (cli/serve.py, runtime/entrypoints/cli/serve.py)
PARSE = """
import dataclasses, json, sys
from sglang.multimodal_gen.runtime.entrypoints.cli.serve import add_multimodal_gen_serve_args
from sglang.multimodal_gen.runtime.server_args import ServerArgs
from sglang.multimodal_gen.runtime.utils.argparse import FlexibleArgumentParser
found = []
for argv in json.load(sys.stdin):
    parser = add_multimodal_gen_serve_args(FlexibleArgumentParser())
    args, unknown = parser.parse_known_args(argv)
    resolved = ServerArgs.from_cli_args(args, unknown, default_args={"warmup_mode": "server"}, argv=argv)
    names = ("num_gpus tp_size sp_degree ulysses_degree ring_degree kv_gather_degree cfg_parallel_degree dp_size "
             "dit_cpu_offload dit_layerwise_offload text_encoder_cpu_offload performance_mode warmup_mode output_path "
             "port scheduler_port master_port enable_torch_compile disable_conditioning_cache")
    found.append({name: getattr(resolved, name) for name in names.split()})
print(json.dumps(found))
"""
VALIDATE = """
import json, sys
from sglang.multimodal_gen.runtime.entrypoints.openai.protocol import ImageGenerationsRequest, VideoGenerationsRequest
kinds = {"image": ImageGenerationsRequest, "video": VideoGenerationsRequest}
print(json.dumps([sorted(kinds[kind].model_validate(body).model_extra) for kind, body in json.load(sys.stdin)]))
"""
# A request as a worker logs and dumps it, by the server's own classes: start, stages, steps, dump, end
SPEAK = """
import io, json, sys, types
from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req
from sglang.multimodal_gen.runtime.utils import logging_utils, perf_logger
folder = json.load(sys.stdin)
said = io.StringIO()
sys.stdout = said
logging_utils.configure_logger(types.SimpleNamespace(log_level="info", uvicorn_access_log_exclude_prefixes=[]))
logger = logging_utils.init_logger("sglang.multimodal_gen.test")
metrics = perf_logger.RequestMetrics(request_id="one")
asked = SamplingParams(prompt="a prompt", num_inference_steps=2, width=256, height=256, output_file_name="a.png")
pipeline = types.SimpleNamespace(embedded_cfg_scale=1.0, flow_shift=None)
Req(sampling_params=asked).log(types.SimpleNamespace(pipeline_config=pipeline))
with logging_utils.log_generation_timer(logger, "a prompt"):
    for name in ("TextEncodingStage", "DenoisingStage", "DecodingStage"):
        with perf_logger.StageProfiler(name, logger=logger, metrics=metrics, log_stage_start_end=True,
                                       perf_dump_path_provided=True):
            for step in range(2 if name == "DenoisingStage" else 0):
                with perf_logger.StageProfiler(f"denoising_step_{step}", logger=logger, metrics=metrics,
                                               perf_dump_path_provided=True, record_as_step=True):
                    sum(range(300000))
metrics.total_duration_ms = sum(metrics.stages.values()) + 1
perf_logger.PerformanceLogger.dump_benchmark_report(file_path=folder + "/dump.json", metrics=metrics)
sys.stdout = sys.__stdout__
print(json.dumps(said.getvalue()))
"""


def argv_of(form: str) -> list[str]:
    engine = Sglang(replace(SETTINGS, engine=replace(SETTINGS.engine, model=str(Z_IMAGE))))
    command = engine.serve_command(parse_form(form), port=41000, visible_env={}, capture_dir=None).argv
    return list(command[command.index("--model-path") :])


def test_every_form_s_arguments_are_accepted_and_mean_what_they_say() -> None:
    resolved = dict(zip(FORMS, in_sglang(PARSE, [argv_of(form) for form in FORMS]), strict=True))
    degrees = "num_gpus tp_size sp_degree ulysses_degree ring_degree kv_gather_degree cfg_parallel_degree dp_size"
    told = {form: [found[name] for name in degrees.split()] for form, found in resolved.items()}
    assert told["tp1-usp1"] == [1, 1, 1, 1, 1, 1, 1, 1]
    assert told["tp2-usp1"] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert told["tp1-usp2-ring2"] == [4, 1, 4, 2, 2, 1, 1, 1]
    assert told["tp1-usp1-ag2"] == [2, 1, 2, 2, 1, 2, 1, 1]  # the Ulysses groups are those of all-gather-KV
    assert told["tp1-usp2-cfg2"] == [4, 1, 2, 2, 1, 1, 2, 1]
    for form, found in resolved.items():
        assert found["dit_cpu_offload"] is ("cpu-offload" in form)
        assert found["dit_layerwise_offload"] is ("layerwise" in form)
        assert found["text_encoder_cpu_offload"] is ("cpu-offload" in form)
        assert (found["performance_mode"], found["warmup_mode"]) == ("manual", "off")
        assert [found[f"{port}port"] for port in ("", "scheduler_", "master_")] == [41000, 41002, 41003]
        assert found["output_path"] is None
        assert (found["enable_torch_compile"], found["disable_conditioning_cache"]) == (False, True)


def client(**workload: Any) -> SglangClient:
    return SglangClient(
        "http://127.0.0.1:9",
        replace(SETTINGS.workload, **workload),
        ServerFiles("/scratch", lambda _: b""),
        always={"generator_device": "cpu"},
        request_timeout_s=1,
    )


def test_every_request_validates_and_holds_no_field_that_the_model_does_not_know() -> None:
    image = client(negative_prompt="fog", flow_shift=3.0)
    video = client(endpoint="video-async", frames=9, fps=8, negative_prompt="fog", flow_shift=3.0)
    video.start_profile()
    bodies = [("image", image.body(4, "/scratch/a")), ("video", video.body(4, "/scratch/b"))]
    assert in_sglang(VALIDATE, bodies) == [[], []]


def test_lines_of_the_server_s_own_classes_are_read_and_agree_with_its_own_dump(tmp_path: Path) -> None:
    text = in_sglang(SPEAK, str(tmp_path))
    told = told_by((tmp_path / "dump.json").read_bytes())
    assert told is not None and len(told.steps_s) == 2
    log = parse_log(text, [Response(RequestStatus.OK, 60.0, steps=2, told=told)])
    (timed,) = log.requests
    assert log.findings == ()
    assert (timed.steps, timed.iterations) == (2, 2)
    assert timed.diffuse_s == told.stages_s["DenoisingStage"]
    assert sum(timed.steps_s) <= timed.diffuse_s
    assert timed.encode_s and timed.decode_s and timed.forward_s
