"""The dummy run's command line: the flags of a vllm-omni launch, and nothing that is silently ignored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.dummy_run.arguments import ProfilerSettings, UsageError, parse_serve
from anchormatrix.engines.dummy_run.cards import cores_of_ranks, parse_cards
from anchormatrix.engines.dummy_run.logs import worker_tag
from anchormatrix.engines.dummy_run.model.models import MODELS
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.vllm_omni.grammar import read_log
from anchormatrix.errors import EngineError, InputError
from anchormatrix.records.form import parse_form

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "config" / "examples" / "cpu-dummy-run.yaml"


def test_the_degrees_multiply_to_the_world() -> None:
    options = parse_serve(["wan-tiny", "--usp", "2", "--tensor-parallel-size", "2", "--cfg-parallel-size", "2"])
    assert (options.usp, options.tp, options.cfg, options.ring, options.world) == (2, 2, 2, 1, 8)


@pytest.mark.parametrize("form", ["tp1-usp1", "tp1-usp2", "tp2-usp1", "tp1-usp1-ring2", "tp1-usp1-cfg2"])
def test_the_engine_s_command_is_understood_by_the_server(form: str) -> None:
    engine = open_engine(load_settings(EXAMPLE))
    command = engine.serve_command(
        parse_form(form), port=8123, visible_env={"ANCHORMATRIX_CARD_CORES": "0;1"}, capture_dir="/tmp/traces"
    )
    assert command.argv[3] == "serve"
    options = parse_serve(list(command.argv[4:]))
    degrees = parse_form(form)
    assert (options.tp, options.usp, options.ring, options.cfg) == (degrees.tp, degrees.usp, degrees.ring, degrees.cfg)
    assert (options.host, options.port, options.stage_log) == ("127.0.0.1", 8123, True)
    assert options.profiler == ProfilerSettings("/tmp/traces", delay=1, steps=1)
    assert command.env["ANCHORMATRIX_CARD_CORES"] == "0;1"


def test_the_engine_refuses_what_it_has_no_flag_for() -> None:
    engine = open_engine(load_settings(EXAMPLE))
    assert {"pp", "ag"}.isdisjoint(engine.limits().degrees)
    with pytest.raises(EngineError, match="layerwise-offload"):
        engine.serve_command(parse_form("tp1-usp2+layerwise-offload"), port=8123, visible_env={}, capture_dir=None)


def test_the_captured_request_has_a_step_to_skip_and_one_to_capture() -> None:
    assert open_engine(load_settings(EXAMPLE)).capture_request_steps(2) == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["wan-large"], "one of wan-tiny"),
        (["wan-tiny", "--num-gpus", "3", "--usp", "2"], "the degrees multiply to 2"),
        (["wan-tiny", "--allgather-degree", "2"], "no all-gather-KV"),
        (["wan-tiny", "--pipeline-parallel-size", "2"], "no pipeline split"),
        (["wan-tiny", "--cfg-parallel-size", "3"], "2 guidance branch"),
        (["flux-tiny", "--cfg-parallel-size", "2"], "1 guidance branch"),
        (["wan-tiny", "--enable-cpu-offload"], "--enable-cpu-offload"),
        (["wan-tiny", "--usp", "0"], "--usp"),
        (["wan-tiny", "--port", "0"], "not a port"),
        (["wan-tiny", "--profiler-config", "{}"], "torch_profiler_dir"),
        (["wan-tiny", "--profiler-config", '{"torch_profiler_dir": ""}'], "torch_profiler_dir"),
        (["wan-tiny", "--profiler-config", "[1]"], "torch_profiler_dir"),
        (["wan-tiny", "--unheard-of"], "--unheard-of"),
        ([], "model"),
    ],
)
def test_a_wrong_flag_is_named(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_serve(argv)


def test_without_its_configuration_there_is_no_profiler() -> None:
    assert parse_serve(["wan-tiny"]).profiler is None


@pytest.mark.parametrize(
    ("text", "cards"),
    [("0;1", [(0,), (1,)]), ("0,1;2,3", [(0, 1), (2, 3)]), ("0-3;8,4-5", [(0, 1, 2, 3), (4, 5, 8)])],
)
def test_card_cores_are_one_set_per_card(text: str, cards: list[tuple[int, ...]]) -> None:
    assert parse_cards(text) == cards


@pytest.mark.parametrize("text", ["", "a", "0;;1", "0;0", "3-1;4", "0,", "-1"])
def test_card_cores_that_cannot_be_meant_are_an_error(text: str) -> None:
    with pytest.raises(InputError, match="ANCHORMATRIX_CARD_CORES"):
        parse_cards(text)


def test_ranks_take_the_cards_in_order_and_need_one_each() -> None:
    assert cores_of_ranks("1;0", 2, {0, 1}) == [(1,), (0,)]
    with pytest.raises(InputError, match="1 cards for 2 ranks"):
        cores_of_ranks("0", 2, {0, 1})
    with pytest.raises(InputError, match="core 7 is not available"):
        cores_of_ranks("0;7", 2, {0, 1})


def test_without_cards_the_cores_are_shared_out_and_reused_when_too_few() -> None:
    assert cores_of_ranks(None, 2, {0, 1, 2, 3}) == [(0, 1), (2, 3)]
    assert cores_of_ranks(None, 4, {0, 1}) == [(0,), (1,), (0,), (1,)]


def test_a_worker_s_tag_names_the_groups_it_is_split_over() -> None:
    assert worker_tag({"SP": (1, 2), "CFG": (0, 1), "TP": (0, 1)}, 238) == "(DiffusionWorker_SP1 pid=238)"
    assert worker_tag({"SP": (0, 2), "CFG": (1, 2), "TP": (0, 1)}, 9) == "(DiffusionWorker_SP0_CFG1 pid=9)"
    assert worker_tag({}, 7) == "(DiffusionWorker pid=7)"
    assert list(read_log(f"{worker_tag({'TP': (1, 2)}, 5)} INFO x\n").workers) == [("DiffusionWorker_TP1", "5")]


@pytest.mark.parametrize(
    ("model", "size", "shape"),
    [
        ("wan-tiny", (256, 128, 29), (8, 16, 32)),
        ("wan-tiny", (16, 16, 1), (1, 2, 2)),
        ("flux-tiny", (512, 256, 1), (1, 32, 64)),
    ],
)
def test_latents_follow_from_the_geometry(model: str, size: tuple[int, int, int], shape: tuple[int, int, int]) -> None:
    assert MODELS[model].latent_shape(*size) == shape


@pytest.mark.parametrize(
    ("size", "said"), [((250, 128, 29), "width 250"), ((256, 0, 29), "height 0"), ((256, 128, 30), "num_frames 30")]
)
def test_a_geometry_that_the_model_cannot_take_is_named(size: tuple[int, int, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MODELS["wan-tiny"].latent_shape(*size)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["serve", "wan-tiny"], "make dummy-run-env"),
        (["--version"], "make dummy-run-env"),
        (["serve", "wan-tiny", "--usp", "two"], "--usp"),
        (["bench"], "usage:"),
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_code_2(argv: list[str], said: str) -> None:
    """The interpreter that runs the tests has no torch, which is what the first two cases are about."""
    done = subprocess.run(
        [sys.executable, "-m", "anchormatrix.engines.dummy_run", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
