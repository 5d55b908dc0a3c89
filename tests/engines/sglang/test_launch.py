"""SGLang's command line: every degree and every switch said, masking by the environment, refusals with their reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.base import EngineRule
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.sglang.launch import Sglang
from anchormatrix.errors import EngineError
from anchormatrix.records.form import parse_form

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = load_settings(ROOT / "config" / "examples" / "cpu-sglang.yaml")
ON_GPUS = Sglang(replace(SETTINGS, device=replace(SETTINGS.device, kind="nvidia")))


def command(form: str, engine: Sglang = ON_GPUS, capture_dir: str | None = None, port: int = 8000):
    return engine.serve_command(parse_form(form), port=port, visible_env={}, capture_dir=capture_dir)


def value(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_the_configuration_finds_the_engine():
    assert open_engine(SETTINGS).name == "sglang"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("tp1-usp1", "1 1 1 1 1 1 1 1"),
        ("tp2-usp1", "2 2 1 1 1 1 1 1"),
        ("tp1-usp2-ring2-cfg2", "8 1 4 2 2 1 2 1"),
        ("tp2-usp1-ag2", "4 2 2 1 1 2 1 1"),
    ],
)
def test_every_degree_is_said_since_what_is_not_said_is_automatic(form: str, said: str):
    argv = command(form).argv
    flags = "num-gpus tp-size sp-degree ulysses-degree ring-degree kv-gather-degree cfg-parallel-size dp-size"
    assert " ".join(value(argv, f"--{flag}") for flag in flags.split()) == said


@pytest.mark.parametrize(
    ("form", "dit", "layers", "text"),
    [
        ("tp1-usp2", "false", "false", "false"),
        ("tp1-usp2+cpu-offload", "true", "false", "true"),
        ("tp1-usp2+layerwise-offload", "false", "true", "false"),
    ],
)
def test_every_residency_is_said(form: str, dit: str, layers: str, text: str):
    argv = command(form).argv
    assert value(argv, "--dit-cpu-offload") == dit
    assert value(argv, "--dit-layerwise-offload") == layers
    assert value(argv, "--text-encoder-cpu-offload") == text
    assert value(argv, "--performance-mode") == "manual"
    assert value(argv, "--warmup-mode") == "off"


def test_chunks_of_masking_are_head_groups_and_a_form_without_them_masks_nothing():
    name = "SGLANG_DIFFUSION_ULYSSES_PIPELINE_GROUPS"
    assert command("tp1-usp2+mask4").env[name] == "4"
    assert command("tp1-usp2").env[name] == "1"


def test_stages_are_synchronised_and_a_capture_has_its_folder():
    env = command("tp1-usp2", capture_dir="/scratch/capture").env
    assert env["SGLANG_DIFFUSION_SYNC_STAGE_PROFILING"] == "1"
    assert env["SGLANG_DIFFUSION_TORCH_PROFILER_DIR"] == "/scratch/capture"
    assert "SGLANG_DIFFUSION_TORCH_PROFILER_DIR" not in command("tp1-usp2").env


def test_every_port_is_strict_its_own_and_none_of_them_that_of_offline_jobs():
    argv = command("tp1-usp2", port=8000).argv
    assert "--strict-ports" in argv
    assert (value(argv, "--scheduler-port"), value(argv, "--master-port")) == ("8002", "8003")
    last = command("tp1-usp2", port=65535).argv
    assert (value(last, "--scheduler-port"), value(last, "--master-port")) == ("65532", "65533")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("tp1-usp2+distributed-layerwise-offload", "each rank streams whole layers"),
        ("tp1-usp1-ag2+mask4", "masks the exchange of Ulysses, without ring"),
        ("tp1-usp2-ring2+mask4", "masks the exchange of Ulysses, without ring"),
    ],
)
def test_what_the_release_cannot_do_is_refused(form: str, why: str):
    assert why in (ON_GPUS.refusal(parse_form(form)) or "")
    with pytest.raises(EngineError, match="leave the form out"):
        command(form)


def test_a_cpu_has_no_ring_and_combines_tensor_parallelism_with_nothing():
    on_cpu = Sglang(SETTINGS)
    assert "ring" in ON_GPUS.limits().degrees
    assert "ring" not in on_cpu.limits().degrees
    assert on_cpu.refusal(parse_form("tp2-usp1")) is None
    assert "combines tensor parallelism with nothing" in (on_cpu.refusal(parse_form("tp2-usp2")) or "")
    assert ON_GPUS.refusal(parse_form("tp2-usp2")) is None


def test_on_a_cpu_the_platform_is_named_and_a_rank_has_the_threads_of_its_card():
    env = (
        Sglang(SETTINGS)
        .serve_command(
            parse_form("tp1-usp2"),
            port=8000,
            visible_env={"ANCHORMATRIX_CARD_CORES": "0,1,2;3,4,5"},
            capture_dir=None,
        )
        .env
    )
    assert env["SGLANG_DIFFUSION_PLATFORM_OVERRIDE"] == "cpu"
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["ANCHORMATRIX_CARD_CORES"] == "0,1,2;3,4,5"
    assert "SGLANG_DIFFUSION_PLATFORM_OVERRIDE" not in command("tp1-usp2").env


def test_a_source_is_named_for_each_limit():
    assert ON_GPUS.limits().source(EngineRule.HEADS) == "SGLang diffusion 0.5.23 (runtime/layers/usp.py:389)"
    assert not ON_GPUS.limits().ag_with_ulysses
