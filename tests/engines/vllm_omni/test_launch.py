"""vllm-omni launches: every form and feature as arguments and environment, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.base import EngineRule, ServeCommand
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.vllm_omni.launch import VllmOmni, expected_groups
from anchormatrix.errors import EngineError
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.values import DeviceKind
from anchormatrix.records.settings.whole import Settings


@pytest.fixture(scope="module")
def settings() -> Settings:
    """The default configuration."""
    return load_settings(DEFAULT_FILE)


def launch(settings: Settings, form: str, capture_dir: str | None = None) -> ServeCommand:
    engine = VllmOmni(settings)
    visible = {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}
    return engine.serve_command(parse_form(form), port=8123, visible_env=visible, capture_dir=capture_dir)


def flags(command: ServeCommand) -> dict[str, str]:
    argv = command.argv
    return {argv[i]: argv[i + 1] for i in range(len(argv) - 1) if argv[i].startswith("--")}


def engine_settings(settings: Settings, **values: Any) -> Settings:
    return replace(settings, engine=replace(settings.engine, **values))


def test_the_whole_command_of_a_plain_form(settings: Settings) -> None:
    command = launch(settings, "tp2-usp2")
    assert " ".join(command.argv) == (
        "vllm serve Wan-AI/Wan2.2-T2V-A14B-Diffusers --omni --host 127.0.0.1 --port 8123 --num-gpus 4 "
        "--tensor-parallel-size 2 --usp 2 --ring 1 --distributed-executor-backend mp "
        "--enable-diffusion-pipeline-profiler"
    )
    assert command.env["ASCEND_RT_VISIBLE_DEVICES"] == "0,1"
    assert command.env["HCCL_NPU_SOCKET_PORT_RANGE"] == "auto"


def test_cuda_gets_no_ascend_environment(settings: Settings) -> None:
    nvidia = replace(settings, device=replace(settings.device, kind=DeviceKind.NVIDIA))
    assert not [name for name in launch(nvidia, "tp1-usp2").env if "HCCL" in name]


@pytest.mark.parametrize(
    ("form", "flag", "value"),
    [
        ("tp1-usp2-ring2", "--ring", "2"),
        ("tp1-usp1-ag2", "--allgather-degree", "2"),
        ("tp1-usp4-cfg2", "--cfg-parallel-size", "2"),
        ("tp1-usp2-pp2", "--pipeline-parallel-size", "2"),
        ("tp1-usp4-cfg2", "--num-gpus", "8"),
        ("tp1-usp1", "--distributed-executor-backend", "mp"),
    ],
)
def test_every_degree_has_its_flag(settings: Settings, form: str, flag: str, value: str) -> None:
    assert flags(launch(settings, form))[flag] == value


@pytest.mark.parametrize("offload", ["cpu-offload", "layerwise-offload", "distributed-layerwise-offload"])
def test_every_offload_has_its_flag(settings: Settings, offload: str) -> None:
    assert launch(settings, f"tp1-usp4+{offload}").argv[-1] == f"--enable-{offload}"


def test_the_profiler_is_configured_only_for_a_capture(settings: Settings) -> None:
    config = flags(launch(settings, "tp1-usp4", "/scratch/capture"))["--profiler-config"]
    assert json.loads(config)["torch_profiler_dir"] == "/scratch/capture"
    assert "--profiler-config" not in launch(settings, "tp1-usp4").argv


def test_masking_needs_a_plug_in_with_a_switch(settings: Settings) -> None:
    with pytest.raises(EngineError, match="no switch for communication masking"):
        launch(settings, "tp1-usp4+mask4")
    switched = engine_settings(settings, extra_args=("--mask-chunks", "{mask_chunks}"), env={"CHUNKS": "{mask_chunks}"})
    command = launch(switched, "tp1-usp4+mask4")
    assert (command.argv[-2:], command.env["CHUNKS"]) == (("--mask-chunks", "4"), "4")


def test_a_container_gets_the_environment_as_arguments(settings: Settings) -> None:
    wrapped = engine_settings(settings, command=("docker", "exec", "{env}", "box", "vllm"))
    argv = launch(wrapped, "tp1-usp2").argv
    assert argv[:2] == ("docker", "exec")
    assert ("--env", "ASCEND_RT_VISIBLE_DEVICES=0,1") in pairwise(argv)
    assert argv[argv.index("box") + 1 : argv.index("box") + 3] == ("vllm", "serve")


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("tp1-usp4+mask4", "no switch for communication masking"),
        ("tp1-usp1+distributed-layerwise-offload", "sequence group"),
    ],
)
def test_what_the_engine_refuses_is_said_before_the_start(settings: Settings, form: str, reason: str) -> None:
    assert reason in (VllmOmni(settings).refusal(parse_form(form)) or "")
    with pytest.raises(EngineError, match="leave the form out"):
        launch(settings, form)


def test_it_declares_what_the_release_can_split_for_the_model(settings: Settings) -> None:
    wan = VllmOmni(settings).limits()
    assert ("pp" in wan.degrees, wan.pads_heads, wan.pads_sequence, wan.ag_with_ulysses) == (True, False, True, False)
    other = VllmOmni(engine_settings(settings, model="stepfun-ai/NextStep-1.1")).limits()
    assert ("pp" in other.degrees, other.pads_sequence) == (False, False)
    assert "pipeline_parallel.py" in other.source(EngineRule.PIPELINE)
    uneven = VllmOmni(engine_settings(settings, extra_args=("--ulysses-mode", "advanced_uaa"))).limits()
    assert (uneven.pads_heads, uneven.pads_sequence) == (True, True)


def test_expected_groups_multiply_to_the_world() -> None:
    groups = expected_groups(parse_form("tp2-usp2-ring2-cfg2"))
    assert groups["world"] == 16
    assert (groups["sp_size"], groups["ulysses_degree"], groups["tp_size"], groups["cfg_size"]) == (4, 2, 2, 2)


def test_engines_are_opened_by_kind(settings: Settings) -> None:
    assert open_engine(settings).name == "vllm-omni"
    assert open_engine(engine_settings(settings, kind="dummy-run")).name == "dummy-run"


def test_a_captured_request_has_enough_steps_to_tell_them_apart_unless_each_is_annotated(settings: Settings) -> None:
    assert VllmOmni(settings).capture_request_steps(2) == 4
    stepwise = engine_settings(settings, extra_args=("--step-execution",))
    assert VllmOmni(stepwise).capture_request_steps(2) == 1
