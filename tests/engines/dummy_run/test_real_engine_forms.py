"""Every form computes what one rank computes; what the libraries refuse ends with their own words."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import threading
import time
from functools import cache
from pathlib import Path

import psutil
import pytest
import requests
from free_ports import free_port
from protocol_suite import DUMMY_RUN, DUMMY_RUN_IMAGE, ROOT, Kind, needs_dummy_run, serving

from anchormatrix.captures.open import load_capture
from anchormatrix.measure.causes import failure_of

pytestmark = [pytest.mark.real_engine, needs_dummy_run, pytest.mark.xdist_group("real_engine")]
QWEN = dataclasses.replace(DUMMY_RUN_IMAGE, name="qwen-image", model="qwen-image-tiny")
FLUX = DUMMY_RUN_IMAGE
TOLERANCE = 1e-5


def outcome(kind: Kind, form: str, folder: Path) -> tuple[str, dict[str, object]]:
    """Fingerprint and digest of a two-step request, from the server's log."""
    with serving(kind, form, folder) as running:
        response = running.client.generate(2)
        assert (response.status, response.error) == ("ok", "")
        found = re.findall(r"Output fingerprint: sha256=(\w{64}) digest=(\{.*\})", running.log_text())
        assert len(found) == 2  # of the warm-up and of the request
        sha256, numbers = found[1]
        if running.settings.workload.endpoint == "video":
            assert response.fingerprint == sha256[:16]
        return sha256, json.loads(numbers)


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """What one rank computes, by model."""

    @cache
    def of(name: str) -> tuple[str, dict[str, object]]:
        kind = {kind.name: kind for kind in (DUMMY_RUN, FLUX, QWEN)}[name]
        return outcome(kind, "tp1-usp1", tmp_path_factory.mktemp(f"one-{name}"))

    return of


@pytest.mark.parametrize("form", ["tp1-usp2", "tp1-usp1-cfg2"])
def test_ulysses_and_cfg_parallel_video_is_bit_identical_to_one_rank(form: str, one_rank, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert outcome(DUMMY_RUN, form, tmp_path)[0] == one_rank(DUMMY_RUN.name)[0]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (DUMMY_RUN, "tp2-usp1"),
        (DUMMY_RUN, "tp1-usp1-ring2"),
        (DUMMY_RUN, "tp1-usp2-ring2"),
        (DUMMY_RUN, "tp2-usp2"),
        (FLUX, "tp1-usp2"),
        (FLUX, "tp2-usp1"),
        (QWEN, "tp1-usp2"),
        (QWEN, "tp1-usp1-ring2"),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else value,
)
def test_forms_that_sum_in_another_order_are_within_the_tolerance(
    kind: Kind,
    form: str,
    one_rank,  # type: ignore[no-untyped-def]
    tmp_path: Path,
) -> None:
    _, numbers = outcome(kind, form, tmp_path)
    _, expected = one_rank(kind.name)
    for name in ("mean", "std", "max"):
        assert numbers[name] == pytest.approx(expected[name], rel=TOLERANCE, abs=TOLERANCE)
    assert numbers["values"] == pytest.approx(expected["values"], rel=TOLERANCE, abs=TOLERANCE)


def test_the_log_says_how_far_a_form_is_from_one_rank(tmp_path: Path) -> None:
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        distances = re.findall(r"Split check: .* relative distance (\S+), limit (\S+)", running.log_text())
        assert distances == [("0.00e+00", "1.00e-05")] * 2


def test_a_split_that_the_library_refuses_ends_with_its_own_message() -> None:
    """Three ranks cannot share eight heads; the engine would refuse, the server is asked all the same."""
    command = [*DUMMY_RUN.settings().engine.command, "serve", "wan-tiny", "--port", str(free_port()), "--usp", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert failure_of(done.stdout).id == "unknown"
    assert re.search(r"RuntimeError: shape '\[1, \d+, 3, 2, 48\]' is invalid", done.stdout)


def test_a_request_that_the_split_cannot_share_out_is_refused_and_the_server_goes_on(tmp_path: Path) -> None:
    """48 × 16 pixels are three tokens."""
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        odd = running.client_of(width=48, height=16, frames=1).generate(2)
        assert odd.status == "error"
        assert "divisible" in odd.error
        assert running.client.generate(2).status == "ok"


def test_cfg_parallelism_without_guidance_splits_nothing_and_says_nothing(tmp_path: Path) -> None:
    """As Wan's pipeline in vllm-omni: every rank computes the one branch."""
    with serving(DUMMY_RUN, "tp1-usp1-cfg2", tmp_path) as running:
        alone = running.client_of(guidance_scale=1.0).generate(2)
        assert (alone.status, alone.error) == ("ok", "")
        assert "CFG parallel" not in running.log_text()
        assert running.client.generate(2).fingerprint != alone.fingerprint


def test_qwen_image_warns_of_cfg_ranks_without_a_negative_prompt(tmp_path: Path) -> None:
    with serving(QWEN, "tp1-usp1-cfg2", tmp_path) as running:
        warning = (
            "CFG parallel is NOT working correctly when there is no negative prompt or negative prompt embeddings."
        )
        assert running.log_text().count(warning) == 2  # the warm-up, of both ranks
        assert running.client.generate(2).status == "ok"
        assert running.log_text().count(warning) == 4
        assert running.client_of(negative_prompt="fog").generate(2).status == "ok"
        assert running.log_text().count(warning) == 4


def test_the_warm_up_and_the_stages_are_logged_as_vllm_omni_logs_them(tmp_path: Path) -> None:
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        stage = re.compile(r"_SP0 pid=\d+\) INFO .*Profiler\] Wan22Pipeline\.(\S+) took")
        assert stage.findall(running.log_text()) == ["text_encoder.forward", "diffuse", "vae.decode", "forward"]
        answer = running.client.generate(3)
        texts = ["text_encoder.forward"] * 2
        assert stage.findall(running.log_text())[4:] == [*texts, "diffuse", "vae.decode", "forward"]
        assert answer.told is not None
        assert set(answer.told.stages_s) == {
            f"Wan22Pipeline.{name}" for name in ("text_encoder.forward", "diffuse", "vae.decode", "forward")
        }
        assert re.search(r"\(DiffusionWorker pid=\d+\) INFO .* Building SP subgroups", running.log_text())
        assert "Worker 1: Scheduler loop started." in running.log_text()


def test_a_capture_holds_one_annotated_step_with_the_collectives_of_the_form(tmp_path: Path) -> None:
    """Wan has four layers, each with four all-to-all calls (q, k, v, out), for two branches; one gather each."""
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        assert running.client.generate(2).status == "ok"
        assert running.client.start_profile() is None
        assert running.client.generate(3).status == "ok"
        assert running.client.stop_profile() is None
        assert sorted(path.name for path in running.capture_dir.iterdir()) == ["rank-0.json.gz", "rank-1.json.gz"]
        kernels = load_capture(running.capture_dir).kernels
    for rank in (0, 1):
        own = kernels[(kernels["rank"] == rank) & (kernels["core"] == "communication")]
        assert set(own["step"]) == {1}
        assert own["family"].value_counts()[["alltoall", "allGather"]].to_dict() == {"alltoall": 32, "allGather": 2}


def test_a_server_whose_parent_is_killed_leaves_no_rank_behind(tmp_path: Path) -> None:
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        ranks = running.children()
        running.process.kill()
        assert psutil.wait_procs(ranks, timeout=10)[1] == []


def test_a_stop_in_the_middle_of_a_request_takes_seconds(tmp_path: Path) -> None:
    with serving(DUMMY_RUN, "tp1-usp2", tmp_path) as running:
        long = threading.Thread(target=running.client_of(width=256, height=256, frames=29).generate, args=(200,))
        long.start()
        while "sampling params" not in running.log_text():
            time.sleep(0.05)
        assert running.stop(within_s=15) == 0
        long.join(10)
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{running.url}/health", timeout=2)
