"""What we send and read, held against LightX2V itself: its argument parser, its request models, and its own server on
two ranks, whose transformer only waits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from free_ports import free_port
from lightx2v_env import BIN, ENV, in_lightx2v, needs_lightx2v, small_model
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.base import ServeCommand
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.lightx2v.client import LightX2VClient
from anchormatrix.engines.lightx2v.launch import LightX2V
from anchormatrix.measure.causes import known_failure
from anchormatrix.measure.proof import prove
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.whole import Settings
from virtualhost.host.scenario_files import load_scenario
from virtualhost.lightx2v.arguments import parse
from virtualhost.lightx2v.log import Task
from virtualhost.lightx2v.session import LightX2VSession

pytestmark = [pytest.mark.real_engine, needs_lightx2v, pytest.mark.xdist_group("lightx2v")]
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = load_settings(ROOT / "config" / "examples" / "nvidia-lightx2v.yaml")
FORM = parse_form("tp1-usp2")
FORMS = ("tp1-usp1", "tp1-usp2", "tp1-usp1-cfg2", "tp1-usp4-cfg2", "tp1-usp2+layerwise-offload")

# As `python -m lightx2v.server` takes its arguments, up to the resolved configuration (server/__main__.py:7,
# server/services/inference/worker.py:49)
PARSE = """
import json, sys
import lightx2v.server.__main__ as entry
from lightx2v.utils.set_config import set_config
found = []
def run_server(args):
    config = set_config(args)
    names = ("task model_cls port host metric_port infer_steps enable_cfg sample_guide_scale cpu_offload "
             "offload_granularity feature_caching parallel attn_type max_custom_size vae_scale_factor")
    found.append({name: config.get(name) for name in names.split()})
entry.run_server = run_server
for argv in json.load(sys.stdin):
    sys.argv = ["lightx2v.server", *argv]
    entry.main()
print(json.dumps(found))
"""
VALIDATE = """
import json, sys
from lightx2v.server.schema import ImageTaskRequest, VideoTaskRequest
kinds = {"image": ImageTaskRequest, "video": VideoTaskRequest}
print(json.dumps([sorted(set(body) - kinds[kind].model_validate(body).model_fields_set)
                  for kind, body in json.load(sys.stdin)]))
"""
SEEDS = """
import json
from unittest.mock import MagicMock
from lightx2v.models.schedulers.qwen_image.scheduler import QwenImageScheduler
from lightx2v.models.schedulers.z_image.scheduler import ZImageScheduler
kept = []
for kind in (ZImageScheduler, QwenImageScheduler):
    scheduler = kind.__new__(kind)
    scheduler.generator = "of the last request"
    scheduler.pos_embed = scheduler.scheduler = MagicMock()
    scheduler.clear()
    kept.append(scheduler.generator)
print(json.dumps(kept))
"""
# The schedulers of a class that takes its steps from the launch and of one that takes them from the request
STEPS = """
import json
import torch
from lightx2v.models.schedulers.wan.scheduler import WanScheduler
from lightx2v.models.schedulers.z_image.scheduler import ZImageScheduler
base = {"infer_steps": 50, "seq_parallel": False, "task": "t2i", "target_video_length": 5, "sample_shift": 5.0,
        "sample_guide_scale": 1.0, "dim": 64, "num_heads": 4}
wan = WanScheduler(dict(base))
wan.config["infer_steps"] = 4
wan.prepare(seed=1, latent_shape=[4, 2, 4, 4])
z_image = ZImageScheduler.__new__(ZImageScheduler)
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
z_image.config, z_image.scheduler_config = {**base, "infer_steps": 4}, {}
z_image.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
z_image.latents = torch.zeros(1, 4, 8, 8)
z_image.set_timesteps()
print(json.dumps([wan.infer_steps, len(wan.timesteps), z_image.infer_steps]))
"""


def settings_for(model: Path, **workload: Any) -> Settings:
    options = {**EXAMPLE.engine.options, "attn_type": "torch_sdpa"}
    engine = replace(EXAMPLE.engine, command=(str(BIN / "torchrun"),), model=str(model), options=options)
    return replace(EXAMPLE, engine=engine, workload=replace(EXAMPLE.workload, width=256, height=256, **workload))


def placed(form: str, settings: Settings, folder: Path, port: int = 41000) -> ServeCommand:
    made = LightX2V(settings).serve_command(parse_form(form), port=port, visible_env={}, capture_dir=None)
    for name, text in made.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return made.placed(str(folder))


def test_every_form_s_arguments_and_file_are_accepted_and_mean_what_they_say(tmp_path: Path) -> None:
    settings = settings_for(small_model(tmp_path / "model"))
    commands = {}
    for form in FORMS:
        (tmp_path / form).mkdir()
        argv = placed(form, settings, tmp_path / form).argv
        commands[form] = list(argv[argv.index("lightx2v.server") + 1 :])
    resolved = dict(zip(FORMS, in_lightx2v(PARSE, list(commands.values())), strict=True))
    assert resolved["tp1-usp1"]["parallel"] is False
    assert resolved["tp1-usp4-cfg2"]["parallel"] == {"seq_p_size": 4, "seq_p_attn_type": "ulysses", "cfg_p_size": 2}
    for form, found in resolved.items():
        assert (found["task"], found["model_cls"], found["host"]) == ("t2i", "qwen_image", "127.0.0.1")
        assert (found["port"], found["metric_port"]) == (41000, "41002")
        assert (found["enable_cfg"], found["sample_guide_scale"], found["infer_steps"]) == (True, 4.0, 4)
        assert (found["feature_caching"], found["attn_type"]) == ("NoCaching", "torch_sdpa")
        assert found["cpu_offload"] is ("offload" in form)
        assert found["offload_granularity"] == ("block" if "offload" in form else None)
        assert found["vae_scale_factor"] == 8


def test_every_request_validates_and_holds_no_field_that_the_model_does_not_know() -> None:
    image = LightX2VClient("http://127.0.0.1:9", EXAMPLE.workload, request_timeout_s=1)
    work = replace(EXAMPLE.workload, endpoint="video", frames=81, negative_prompt="fog")
    video = LightX2VClient("http://127.0.0.1:9", work, request_timeout_s=1)
    assert in_lightx2v(VALIDATE, [("image", image.body(4)), ("video", video.body(4))]) == [[], []]


def test_wan_runs_the_steps_of_its_launch_and_z_image_those_of_the_request() -> None:
    assert in_lightx2v(STEPS, None) == [50, 50, 4]


def test_the_end_of_a_request_takes_the_generator_from_qwen_image_and_not_from_z_image() -> None:
    assert in_lightx2v(SEEDS, None) == ["of the last request", None]


class Running(NamedTuple):
    """The server, as the project sees it."""

    engine: LightX2V
    client: Client
    log_path: Path
    responses: list[Response]

    def generate(self, steps: int) -> Response:
        self.responses.append(self.client.generate(steps))
        return self.responses[-1]

    def log(self):
        return self.engine.read(self.log_path.read_text(encoding="utf-8"), self.responses)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("lightx2v")
    settings, port = settings_for(small_model(folder / "model")), free_port()
    command = placed(FORM.name, settings, folder, port)
    argv = ["lightx2v_bare" if word == "lightx2v.server" else word for word in command.argv]
    engine = LightX2V(settings)
    client = engine.client(f"http://127.0.0.1:{port}", ServerFiles(str(folder), lambda _: b""))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            argv, cwd=folder, env={**os.environ, **command.env, **ENV}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + 240
            while not client.ready():
                said = (folder / "server.log").read_text(encoding="utf-8")[-3000:]
                assert process.poll() is None and time.monotonic() < deadline, said
                time.sleep(0.2)
            yield Running(engine, client, folder / "server.log", [])
        finally:
            client.close()
            family: list[psutil.Process] = []
            if process.poll() is None:
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                process.send_signal(signal.SIGINT)  # torchrun passes it on (each rank: server/main.py:25)
            left = psutil.wait_procs(family, timeout=40)[1]
            for one in left:
                one.kill()
            process.wait()
        assert left == [], "SIGINT did not end the server and its ranks"


def test_a_request_is_answered_and_every_rank_times_every_step_asked_for(server: Running) -> None:
    for steps in (4, 10):
        response = server.generate(steps)
        assert (response.status, response.error, response.media) == ("ok", "", "image/png")
        request = server.log().requests[-1]
        assert (request.steps, request.iterations, request.refused) == (steps, steps, "")
        assert [timing.rank for timing in request.ranks] == [0, 1]
        assert 0.02 <= (request.step_s or 0) < 1.0  # the transformer waits for 0.02 s
        assert len(request.steps_s) == steps
        assert request.encode_s and request.decode_s


def test_equal_requests_have_equal_outputs_and_a_seed_changes_them(server: Running) -> None:
    first, second = server.generate(2), server.generate(2)
    other = LightX2VClient(
        server.client._url,  # type: ignore[attr-defined]
        replace(EXAMPLE.workload, width=256, height=256, seed=43),
        request_timeout_s=60,
    ).generate(2)
    server.responses.append(other)
    assert first.content[:8] == b"\x89PNG\r\n\x1a\n"
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_its_start_up_log_proves_the_form(server: Running) -> None:
    proof = prove(server.log(), server.engine.expected_groups(FORM))
    assert (proof.ok, proof.failures, proof.ranks_seen) == (True, (), 2)
    assert proof.groups_seen == {"sp_size": 2, "ulysses_degree": 2, "ring_degree": 1, "tp_size": 1, "cfg_size": 1}
    assert known_failure(server.log_path.read_text(encoding="utf-8")) is None


def test_nothing_of_the_log_is_unusable(server: Running) -> None:
    server.generate(3)
    log = server.log()
    assert (log.spoiled, log.lost_responses) == ({}, 0)
    assert log.stage_lines >= 2 * (3 * 3 + 3)


def test_what_the_virtual_host_says_the_server_says_at_the_same_place(server: Running, tmp_path: Path) -> None:
    server.generate(2)
    command = placed(FORM.name, settings_for(tmp_path / "model"), tmp_path)
    arguments = command.argv[command.argv.index("--standalone") :]
    scenario = load_scenario(ROOT / "virtualhost" / "scenarios" / "healthy.yaml")
    environment = {"PROFILING_DEBUG_LEVEL": "1", "ASCEND_RT_VISIBLE_DEVICES": "0,1"}
    session = LightX2VSession(scenario, parse(arguments, scenario, environment))
    said = session.startup().text + session.request(Task(2, "POST /v1/tasks/image/", id="ONE")).text
    real = server.log_path.read_text(encoding="utf-8")
    assert shapes(said) <= shapes(real)
    assert len(shapes(said)) >= 16


def shapes(text: str) -> set[tuple[str, str]]:
    """Where each line of a log is made, with its text without what differs from one server to the next."""
    found = re.findall(r"\d{3} \| \w+ +\| ([\w.]+:\w+:\d+) - ([^\n]*)", text)
    return {(where, re.sub(r"\{.*|[\d.]+|Task [\w-]+|task [\w-]+|hccl|gloo$", "~", said)) for where, said in found}
