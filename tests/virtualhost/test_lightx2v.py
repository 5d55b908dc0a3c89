"""The virtual host in LightX2V's words: its command line, its configuration, its tasks, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anchormatrix.engines.lightx2v.parse import parse_log
from anchormatrix.measure.causes import failure_of
from anchormatrix.measure.proof import prove
from virtualhost.host.scenario_files import load_scenario
from virtualhost.lightx2v.arguments import parse
from virtualhost.lightx2v.http_api import read_task
from virtualhost.lightx2v.log import Task
from virtualhost.lightx2v.session import LightX2VSession
from virtualhost.server.arguments import LaunchError

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = load_scenario(ROOT / "virtualhost" / "scenarios" / "healthy.yaml")
ENVIRONMENT = {"PROFILING_DEBUG_LEVEL": "1", "ASCEND_RT_VISIBLE_DEVICES": "0,1"}
SPLIT = {"seq_p_size": 2, "seq_p_attn_type": "ulysses", "cfg_p_size": 1}
GROUPS = {"world": 2, "sp_size": 2, "ulysses_degree": 2, "ring_degree": 1, "tp_size": 1, "cfg_size": 1}


def configured(folder: Path, ranks: int = 2, environment: dict[str, str] = ENVIRONMENT, **values: Any):
    path = folder / "lightx2v.json"
    path.write_text(json.dumps({"infer_steps": 4, "enable_cfg": True, "sample_guide_scale": 4.0, **values}))
    arguments = ["--standalone", "--nproc-per-node", str(ranks), "-m", "lightx2v.server", "--model_path", "/m"]
    arguments += ["--model_cls", "qwen_image", "--port", "8123", "--config_json", str(path)]
    return parse(arguments, HEALTHY, environment)


def session(folder: Path, scenario: str = "healthy", **values: Any) -> LightX2VSession:
    loaded = load_scenario(ROOT / "virtualhost" / "scenarios" / f"{scenario}.yaml")
    return LightX2VSession(loaded, configured(folder, **values))


def test_a_session_is_proved_and_timed_by_the_engine_s_own_reading(tmp_path: Path) -> None:
    one = session(tmp_path, parallel=SPLIT)
    text = one.startup().text
    outcome = one.request(Task(4, "POST /v1/tasks/image/", id="ONE"))
    log = parse_log(text + outcome.text)
    assert prove(log, GROUPS).ok
    (request,) = log.requests
    assert (request.steps, request.iterations, [timing.rank for timing in request.ranks]) == (4, 4, [0, 1])
    assert request.diffuse_s == pytest.approx(sum(request.steps_s))
    assert 0 < (request.diffuse_s or 0) < outcome.virtual_s
    assert outcome.content[:4] == b"\x89PNG"


def test_without_the_level_that_times_spans_nothing_is_timed(tmp_path: Path) -> None:
    quiet = LightX2VSession(
        HEALTHY, configured(tmp_path, environment={"ASCEND_RT_VISIBLE_DEVICES": "0,1"}, parallel=SPLIT)
    )
    log = parse_log(quiet.startup().text + quiet.request(Task(4, "POST /v1/tasks/image/", id="ONE")).text)
    assert "the server logs no stage times" in log.untimed


def test_groups_for_guidance_that_is_off_are_made_and_not_used(tmp_path: Path) -> None:
    parallel = {"seq_p_size": 1, "cfg_p_size": 2}
    log = parse_log(session(tmp_path, enable_cfg=False, parallel=parallel).startup().text)
    assert "cfg_parallel is off" in log.denied["cfg_size"]


def test_a_form_that_is_not_applied_shows_in_the_mesh(tmp_path: Path) -> None:
    scenario = tmp_path / "other.yaml"
    base = ROOT / "virtualhost" / "scenarios" / "healthy.yaml"
    fault = "faults: [{kind: not_applied, applied: tp1-usp1-cfg2}]"
    scenario.write_text(f"extends: {base}\nname: other\ndescription: another form\n{fault}\n")
    one = LightX2VSession(load_scenario(scenario), configured(tmp_path, parallel=SPLIT))
    assert "sp_size is 1, 2 asked for" in prove(parse_log(one.startup().text), GROUPS).failures


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"parallel": {"seq_p_size": 4}}, r"seq_p_size \(4\) != world_size \(2\)"),
        ({"parallel": {"seq_p_size": 2, "seq_p_attn_type": "ring"}}, "RingAttn legacy apply only supports"),
        ({"parallel": {"tensor_p_size": 2}}, "does not read tensor_p_size"),
        ({}, "ranks that all do the same"),
        ({"parallel": SPLIT, "model_cls": "wan2.1"}, "not of wan2.1"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=why):
        configured(tmp_path, **values)


def test_a_missing_file_is_said_as_python_says_it(tmp_path: Path) -> None:
    arguments = [
        "-m",
        "lightx2v.server",
        "--model_path",
        "/m",
        "--model_cls",
        "qwen_image",
        "--config_json",
        "/no/file",
    ]
    with pytest.raises(LaunchError, match=r"\[Errno 2\] No such file or directory: '/no/file'"):
        parse(arguments, HEALTHY, ENVIRONMENT)


def test_a_rank_that_is_killed_is_told_by_torchrun(tmp_path: Path) -> None:
    one = session(tmp_path, parallel=SPLIT)
    one.startup()
    text = one.rank_died(1, 9).text
    assert "failed (exitcode: -9) local_rank: 1 (pid: " in text
    assert failure_of(text).id == "killed"


def test_a_task_has_the_defaults_of_its_model_and_its_own_checks() -> None:
    task = read_task("/v1/tasks/image/", b'{"prompt": "x", "seed": 7}', guidance=4.0, steps=5)
    assert (task.steps, task.seed, task.width, task.height, task.kind) == (5, 7, 1664, 928, "image")
    assert len(task.id.split("-")) == 5
    for body in (b"[]", b"{", b'{"infer_steps": "many"}', b'{"target_shape": 4}', b'{"prompt": 1}'):
        with pytest.raises(ValueError):
            read_task("/v1/tasks/image/", body, guidance=4.0, steps=5)
