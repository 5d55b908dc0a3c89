"""LightX2V's launch: ranks of torchrun, a configuration file that says the form, refusals with their reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.base import EngineRule, ServeCommand
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.lightx2v.launch import LightX2V
from anchormatrix.engines.sglang.launch import Sglang
from anchormatrix.engines.vllm_omni.launch import VllmOmni
from anchormatrix.errors import ConfigError, EngineError
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.records.settings.whole import Settings

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = load_settings(ROOT / "config" / "examples" / "nvidia-lightx2v.yaml")
PLAIN = replace(SETTINGS, workload=replace(SETTINGS.workload, guidance_scale=0.0))


def with_options(settings: Settings = SETTINGS, **options: Any) -> Settings:
    return replace(settings, engine=replace(settings.engine, options={**settings.engine.options, **options}))


def command(form: str, settings: Settings = SETTINGS, port: int = 8000) -> ServeCommand:
    engine = LightX2V(settings)
    return engine.serve_command(
        parse_form(form), port=port, visible_env={"CUDA_VISIBLE_DEVICES": "2,3"}, capture_dir="/c"
    )


def file_of(form: str, settings: Settings = SETTINGS) -> dict[str, Any]:
    return json.loads(command(form, settings).files["lightx2v.json"])


def test_the_configuration_finds_the_engine():
    assert open_engine(SETTINGS).name == "lightx2v"


def test_the_command_is_torchrun_with_a_rendezvous_of_its_own():
    assert command("tp1-usp2").argv == (
        *("torchrun", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", "-m", "lightx2v.server"),
        *(
            "--model_path",
            "/models/Qwen-Image-2512",
            "--model_cls",
            "qwen_image",
            "--host",
            "127.0.0.1",
            "--port",
            "8000",
        ),
        *("--task", "t2i", "--config_json", "{files}/lightx2v.json", "--metric_port", "8002"),
    )
    assert command("tp1-usp2", port=65535).argv[-1] == "65533"


def test_another_commit_than_the_one_that_was_read_is_said():
    assert LightX2V(SETTINGS).caution == LightX2V(SETTINGS, "f8aee98b").caution == ""
    assert LightX2V(SETTINGS, "1a2b3c4").caution == "LightX2V 1a2b3c4 is not known here: taken as its commit f8aee98"


def test_its_files_get_their_directory_when_they_are_placed():
    placed = command("tp1-usp2").placed("/scratch/one")
    assert "/scratch/one/lightx2v.json" in placed.argv
    assert placed.env["LIGHTX2V_CACHE_DIR"] == "/scratch/one/lightx2v"
    assert placed.files.keys() == {"lightx2v.json"}


def test_a_command_is_shown_with_its_files():
    first, *rest = command("tp1-usp2").shown.split("\n")
    assert first.startswith("PYTHONUNBUFFERED=1 PROFILING_DEBUG_LEVEL=1 ")
    assert " torchrun --standalone " in first
    assert rest[0] == "{files}/lightx2v.json: {"
    assert ' "seq_p_size": 2,' in " ".join(rest)


def test_a_command_without_files_keeps_every_brace_it_has():
    plain = ServeCommand(("vllm", "{files}"), {"A": "{files}"})
    assert plain.placed("/scratch") is plain


def test_every_rank_times_its_spans_and_sees_the_cards_of_the_group():
    env = command("tp1-usp2").env
    assert env["PROFILING_DEBUG_LEVEL"] == "1"
    assert (env["PLATFORM"], env["CUDA_VISIBLE_DEVICES"]) == ("cuda", "2,3")


@pytest.mark.parametrize(
    ("form", "parallel"),
    [
        ("tp1-usp2", {"seq_p_size": 2, "seq_p_attn_type": "ulysses", "cfg_p_size": 1}),
        ("tp1-usp1-cfg2", {"seq_p_size": 1, "seq_p_attn_type": "ulysses", "cfg_p_size": 2}),
        ("tp1-usp4-cfg2", {"seq_p_size": 4, "seq_p_attn_type": "ulysses", "cfg_p_size": 2}),
    ],
)
def test_the_file_says_every_degree(form: str, parallel: dict[str, Any]):
    assert file_of(form)["parallel"] == parallel


def test_one_card_has_no_section_of_degrees_since_it_has_no_process_group():
    assert "parallel" not in file_of("tp1-usp1")


def test_the_file_holds_the_workload_and_the_user_s_own_entries():
    values = file_of("tp1-usp2", with_options(SETTINGS, parallel={"seq_p_fp8_comm": True}))
    assert (values["enable_cfg"], values["sample_guide_scale"], values["infer_steps"]) == (True, 4.0, 4)
    assert (values["attn_type"], values["feature_caching"]) == ("flash_attn3", "NoCaching")
    assert (values["cpu_offload"], values["max_custom_size"], values["min_custom_size"]) == (False, 1664, 256)
    assert values["parallel"]["seq_p_fp8_comm"] is True
    assert values["parallel"]["seq_p_size"] == 2
    assert "model_cls" not in values
    assert file_of("tp1-usp2", PLAIN)["enable_cfg"] is False


def test_a_large_picture_is_not_silently_another_size():
    wide = replace(SETTINGS, workload=replace(SETTINGS.workload, width=2048))
    assert file_of("tp1-usp2", wide)["max_custom_size"] == 2048


def test_layerwise_offload_is_that_of_blocks():
    values = file_of("tp1-usp2+layerwise-offload")
    assert (values["cpu_offload"], values["offload_granularity"]) == (True, "block")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("tp1-usp2+cpu-offload", "moves the whole transformer in a request's first and last step"),
        ("tp1-usp2+distributed-layerwise-offload", "each rank streams whole blocks"),
        ("tp1-usp2+mask4", "seq_p_head_parallel"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(form: str, why: str):
    assert why in str(LightX2V(SETTINGS).refusal(parse_form(form)))
    with pytest.raises(EngineError):
        command(form)


def test_branches_that_a_model_without_guidance_does_not_have_are_not_dealt_out():
    assert LightX2V(SETTINGS).refusal(parse_form("tp1-usp1-cfg2")) is None
    refusal = LightX2V(PLAIN).refusal(parse_form("tp1-usp1-cfg2"))
    assert refusal == "guidance is off (workload.guidance_scale 0): no branches to deal out"


def test_a_model_whose_seed_counts_once_is_measured_when_its_outputs_are_not_compared():
    settings, form = with_options(model_cls="z_image"), parse_form("tp1-usp2")
    assert "its outputs cannot be compared; name the form in outputs.by_design" in str(LightX2V(settings).refusal(form))
    named = replace(settings, outputs=replace(settings.outputs, by_design=("tp1-usp2",)))
    assert LightX2V(named).refusal(form) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "wan2.1",
            "with the steps of its launch, whatever a request asks (models/schedulers/wan/scheduler.py:15, :108)",
        ),
        ("wan2.2_moe_distill", "models/schedulers/wan/scheduler.py:15"),
        ("hunyuan_video_1.5", "models/schedulers/hunyuan_video/scheduler.py:49"),
        ("wan2.2_audio", "has not been read; those that were: qwen_image, z_image"),
    ],
)
def test_a_model_whose_requests_cannot_say_their_steps_is_refused(name: str, why: str):
    assert why in str(LightX2V(with_options(model_cls=name)).refusal(parse_form("tp1-usp2")))


def test_a_cpu_is_no_platform():
    refusal = LightX2V(replace(SETTINGS, device=replace(SETTINGS.device, kind="cpu"))).refusal(parse_form("tp1-usp2"))
    assert refusal == "LightX2V f8aee98 has no platform for device.kind cpu"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"model_cls": None}, "the class of its model"),
        ({"cpu_offload": True}, "cpu_offload is for the form to say"),
        ({"parallel": {"seq_p_size": 4}}, "seq_p_size is for the form to say"),
        ({"parallel": [4]}, "not a section"),
        ({"infer_steps": 9}, "infer_steps is for the workload to say"),
        ({"feature_caching": "Tea"}, "feature_caching makes steps unequal: steps that reuse others"),
        ({"lazy_load": True}, "weights are loaded in every request"),
    ],
)
def test_entries_that_belong_elsewhere_are_refused(options: dict[str, Any], what: str):
    with pytest.raises(ConfigError, match=what):
        LightX2V(with_options(**options))


@pytest.mark.parametrize("engine", [VllmOmni, Sglang])
def test_an_engine_that_reads_no_file_refuses_entries_for_one(engine: type):
    with pytest.raises(ConfigError, match=r"engine\.options: .*reads no configuration file: model_cls"):
        engine(SETTINGS)


def test_it_declares_what_was_read():
    limits = LightX2V(SETTINGS).limits()
    assert (limits.degrees, limits.pads_sequence, limits.pads_heads) == (("usp", "cfg"), True, False)
    assert limits.source(EngineRule.HEADS) == "LightX2V f8aee98 (common/ops/attn/ulysses_attn.py:385)"


def test_nothing_is_captured_and_that_is_said():
    engine = LightX2V(SETTINGS)
    assert "has no profiler" in engine.capture_refusal(FEW)
    assert "has no profiler" in engine.capture_refusal(ANCHOR)
