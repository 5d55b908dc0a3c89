"""The dummy run's HTTP side, with ranks that only answer: routes, checks of every field, failures."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from anchormatrix.engines.dummy_run.arguments import parse_serve
from anchormatrix.engines.dummy_run.model.models import MODELS
from anchormatrix.engines.dummy_run.model.payload import PayloadError, parse_form, to_request
from anchormatrix.engines.dummy_run.server import Application, Handler, Server
from anchormatrix.engines.dummy_run.workers import RequestError, WorkersError

FIELDS = {"prompt": "a lighthouse", "width": "32", "height": "16", "num_frames": "5", "num_inference_steps": "2"}


class FakeWorkers:
    """Two ranks that echo what they were asked."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, Any]] = []
        self.error: Exception | None = None
        self.agree = True

    def ask(self, op: str, **values: Any) -> list[dict[str, Any]]:
        self.orders.append((op, values.get("request")))
        if self.error:
            raise self.error
        content = f"{values}".encode()
        fingerprint = hashlib.sha256(content).hexdigest()
        first = {
            "fingerprint": fingerprint,
            "digest": {"mean": 0.0},
            "iterations": 2,
            "durations": {"Wan22Pipeline.diffuse": 1.5, "Wan22Pipeline.forward": 2.0},
            "peak_memory_mb": 512.0,
            "content": base64.b64encode(content).decode(),
            "file": "/tmp/rank-0.json.gz" if op == "stop_profile" else None,
        }
        return [first, {**first, "fingerprint": fingerprint if self.agree else "other"}]


class Running:
    """A server on a free port."""

    def __init__(self, argv: list[str]) -> None:
        self.workers = FakeWorkers()
        self.server = Server(("127.0.0.1", 0), Handler)
        log = logging.getLogger("test_dummy_run_server")
        self.application = Application(parse_serve(argv), self.workers, log)  # type: ignore[arg-type]
        self.server.application = self.application
        self.application.ready.set()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def post(self, path: str, **body: Any) -> requests.Response:
        return requests.post(self.url + path, timeout=10, **body)

    def video(self, path: str = "/v1/videos/sync", **changed: str) -> requests.Response:
        return self.post(path, files={key: (None, value) for key, value in {**FIELDS, **changed}.items()})


@pytest.fixture
def video() -> Iterator[Running]:
    running = Running(["wan-tiny", "--profiler-config", '{"torch_profiler_dir": "/tmp/x"}'])
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def image() -> Iterator[Running]:
    running = Running(["flux-tiny"])
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_health_says_whether_the_ranks_are_ready(video: Running) -> None:
    assert requests.get(video.url + "/health", timeout=10).status_code == 200
    video.application.ready.clear()
    assert requests.get(video.url + "/health", timeout=10).status_code == 503
    assert video.video().status_code == 503


def test_a_video_is_the_latents_whose_sha256_is_the_fingerprint(video: Running) -> None:
    answer = video.video(flow_shift="5.0", guidance_scale="4.5", seed="7", negative_prompt="fog")
    assert answer.status_code == 200
    assert hashlib.sha256(answer.content).hexdigest() == answer.headers["X-Fingerprint"]
    assert answer.headers["X-Ranks-Agree"] == "true"
    (order,) = video.workers.orders
    assert order[1] == {
        "prompt": "a lighthouse",
        "negative_prompt": "fog",
        "width": 32,
        "height": 16,
        "frames": 5,
        "steps": 2,
        "seed": 7,
        "guidance_scale": 4.5,
        "flow_shift": 5.0,
    }


def test_an_answer_tells_what_the_first_rank_spent(video: Running, image: Running) -> None:
    headers = video.video().headers
    told = json.loads(headers["X-Stage-Durations"])
    assert (told["Wan22Pipeline.diffuse"], told["Wan22Pipeline.forward"]) == (1.5, 2.0)
    assert set(told) - {"Wan22Pipeline.diffuse", "Wan22Pipeline.forward"} == {"queue_wait_ms", "stage_0_gen_ms"}
    assert (headers["X-Peak-Memory-MB"], headers["X-Model"]) == ("512.000", "wan-tiny")
    metrics = image.post("/v1/images/generations", json={"prompt": "x", "size": "32x16"}).json()["metrics"]
    assert (metrics["peak_memory_mb"], metrics["stage_durations"]["Wan22Pipeline.diffuse"]) == (512.0, 1.5)


def test_only_a_video_is_announced(video: Running, image: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    image.post("/v1/images/generations", json={"prompt": "x", "size": "32x16"})
    assert "sampling params" not in caplog.text
    video.video()
    assert "Video sampling params: steps=2 guidance=5.0 guidance_2=None seed=0" in caplog.text


@pytest.mark.parametrize(
    ("fields", "scale"),
    [({}, 1.0), ({"negative_prompt": "fog"}, 4.0), ({"negative_prompt": "fog", "true_cfg_scale": 2}, 2.0)],
)
def test_qwen_image_is_guided_by_its_own_field_beside_a_negative_prompt(fields: dict[str, Any], scale: float) -> None:
    request = to_request({"prompt": "x", "guidance_scale": 7, **fields}, MODELS["qwen-image-tiny"])
    assert request["guidance_scale"] == scale


def test_ranks_that_disagree_are_said_to(video: Running) -> None:
    video.workers.agree = False
    assert video.video().headers["X-Ranks-Agree"] == "false"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": ""}, "prompt"),
        ({"num_inference_steps": "0"}, "num_inference_steps '0'"),
        ({"num_inference_steps": "four"}, "num_inference_steps 'four'"),
        ({"width": "33"}, "width 33"),
        ({"num_frames": "6"}, "num_frames 6"),
        ({"guidance_scale": "nan"}, "guidance_scale"),
        ({"seed": "-1"}, "seed '-1'"),
        ({"size": "wide"}, "size 'wide'"),
        ({"extra_params": "["}, "JSON"),
        ({"extra_params": '{"cache": true}'}, "no extra parameters"),
    ],
)
def test_a_wrong_field_is_refused_by_name(video: Running, changed: dict[str, str], said: str) -> None:
    answer = video.video(**changed)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert video.workers.orders == []


def test_an_asynchronous_video_is_asked_for_until_it_is_done(video: Running) -> None:
    job = video.video("/v1/videos").json()
    url = f"{video.url}/v1/videos/{job['id']}"
    for _ in range(100):
        state = requests.get(url, timeout=10).json()
        if state["status"] == "completed":
            break
        time.sleep(0.02)
    content = requests.get(url + "/content", timeout=10).content
    assert hashlib.sha256(content).hexdigest() == state["fingerprint"]
    assert job["id"].startswith("video_gen_")
    assert state["stage_durations"]["Wan22Pipeline.diffuse"] == 1.5
    assert (state["peak_memory_mb"], state["inference_time_s"] > 0) == (512.0, True)
    assert requests.get(f"{video.url}/v1/videos/none", timeout=10).status_code == 404


def test_an_asynchronous_video_that_fails_says_why(video: Running) -> None:
    video.workers.error = RequestError("ValueError: no")
    job = video.video("/v1/videos").json()
    for _ in range(100):
        answer = requests.get(f"{video.url}/v1/videos/{job['id']}", timeout=10)
        if (state := answer.json())["status"] == "failed":
            break
        time.sleep(0.02)
    assert answer.status_code == 500
    assert state["error"]["message"] == "ValueError: no"


def test_an_image_is_a_picture_in_json(image: Running) -> None:
    answer = image.post("/v1/images/generations", json={"prompt": "x", "size": "32x16", "num_inference_steps": 2})
    assert answer.status_code == 200
    assert base64.b64decode(answer.json()["data"][0]["b64_json"])
    assert image.workers.orders[0][1]["width"] == 32


def test_models_are_served_at_their_own_endpoint_only(image: Running, video: Running) -> None:
    assert "/v1/images/generations" in image.video().json()["error"]["message"]
    answer = video.post("/v1/images/generations", json={"prompt": "x"})
    assert "/v1/videos/sync" in answer.json()["error"]["message"]


def test_a_request_that_all_ranks_refuse_leaves_the_server_running(video: Running) -> None:
    video.workers.error = RequestError("AssertionError: not divisible")
    assert video.video().status_code == 500
    assert not video.application.stop.is_set()


def test_a_rank_that_is_lost_ends_the_server(video: Running) -> None:
    video.workers.error = WorkersError("rank 1 (pid 7) died with SIGKILL")
    assert video.video().status_code == 500
    assert video.application.stop.is_set()
    assert "rank 1" in video.application.failure


def test_profiling_needs_a_profiler(video: Running, image: Running) -> None:
    assert video.post("/start_profile").status_code == 200
    assert video.post("/stop_profile").json()["files"] == ["/tmp/rank-0.json.gz"] * 2
    assert image.post("/start_profile").status_code == 404


def test_paths_and_bodies_that_are_not_part_of_the_protocol(video: Running) -> None:
    assert requests.get(video.url + "/metrics", timeout=10).status_code == 404
    assert video.post("/v2/videos").status_code == 404
    assert video.post("/v1/videos/sync", data=b"plain").status_code == 400
    long = requests.Request("POST", video.url + "/v1/videos/sync", headers={"Content-Length": str(1 << 30)}).prepare()
    long.headers["Content-Length"] = str(1 << 30)
    assert requests.Session().send(long, timeout=10).status_code == 413


def test_a_form_without_its_boundary_is_no_form() -> None:
    with pytest.raises(PayloadError):
        parse_form("multipart/form-data", b"--x\r\n\r\n")
    with pytest.raises(PayloadError):
        parse_form("application/json", b"{}")
