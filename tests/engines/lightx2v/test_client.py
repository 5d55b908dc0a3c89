"""LightX2V's client: a task is made, polled and fetched; every other end is an error with the server's words."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.lightx2v.client import LightX2VClient

ROOT = Path(__file__).resolve().parents[3]
WORKLOAD = load_settings(ROOT / "config" / "examples" / "nvidia-lightx2v.yaml").workload


class Tasks(BaseHTTPRequestHandler):
    """One task whose states are given; ``made`` is what creating it answers."""

    states: list[dict[str, Any]]
    made: tuple[int, dict[str, Any]]
    asked: list[tuple[str, Any]]
    output = b"picture"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        self._json(*self.made)

    def do_GET(self) -> None:
        self.asked.append((self.path, None))
        if self.path.endswith("/result"):
            self._reply(200, self.output, "image/png")
        else:
            self._json(200, self.states.pop(0) if len(self.states) > 1 else self.states[0])

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def tasks():
    class Mine(Tasks):
        states: ClassVar = [{"status": "completed", "error": None}]
        made = (200, {"task_id": "LA8H-0NL0", "task_status": "pending", "save_result_path": "LA8H-0NL0"})
        asked: ClassVar = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield Mine, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def client(url: str, **workload: Any) -> LightX2VClient:
    return LightX2VClient(url, replace(WORKLOAD, **workload), request_timeout_s=5)


def test_a_picture_is_a_task_polled_and_fetched(tasks) -> None:
    kind, url = tasks
    kind.states = [{"status": "pending"}, {"status": "processing"}, {"status": "completed", "error": None}]
    response = client(url).generate(4)
    assert (response.status, response.content, response.media, response.steps) == ("ok", b"picture", "image/png", 4)
    assert kind.asked[0] == (
        "/v1/tasks/image/",
        {
            "prompt": "A lighthouse on a cliff at dawn, waves below",
            "negative_prompt": "",
            "infer_steps": 4,
            "seed": 42,
            "target_shape": [1328, 1328],
        },
    )
    assert [path for path, _ in kind.asked[1:]] == [*["/v1/tasks/LA8H-0NL0/status"] * 3, "/v1/tasks/LA8H-0NL0/result"]


def test_a_video_says_its_frames_and_extra_parameters_are_fields() -> None:
    body = client("http://127.0.0.1:9", endpoint="video", frames=81, extra_params={"lora_strength": 0.5}).body(10)
    assert (body["target_video_length"], body["infer_steps"], body["lora_strength"]) == (81, 10, 0.5)


def test_a_failed_task_says_why(tasks) -> None:
    kind, url = tasks
    kind.states = [{"status": "failed", "error": "CUDA out of memory"}]
    response = client(url).generate(4)
    assert (response.status, response.error) == ("error", "job LA8H-0NL0 failed: CUDA out of memory")


def test_a_full_queue_is_an_error_with_the_server_s_words(tasks) -> None:
    kind, url = tasks
    kind.made = (503, {"detail": "Task queue is full (max 10 tasks)"})
    assert "HTTP 503: " in client(url).generate(4).error
    kind.made = (200, {"detail": "no id"})
    assert "the job has no usable id" in client(url).generate(4).error


def test_an_empty_output_is_no_output(tasks) -> None:
    kind, url = tasks
    kind.output = b""
    assert client(url).generate(4).error == "the output of /v1/tasks/LA8H-0NL0 is empty"


def test_there_is_no_profiler_to_ask_for() -> None:
    one = client("http://127.0.0.1:9")
    assert "has no profiler" in str(one.start_profile())
    assert "has no profiler" in str(one.stop_profile())
