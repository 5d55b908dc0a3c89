"""The client of SGLang's server against a small server: bodies, jobs, dumps read back, and the profiler's fields."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.client import ServerFiles
from anchormatrix.engines.sglang.client import SglangClient
from anchormatrix.errors import HostError

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = load_settings(ROOT / "config" / "examples" / "cpu-sglang.yaml")
PICTURE = base64.b64encode(b"a picture").decode()
DUMP = {
    "total_duration_ms": 900.0,
    "steps": [{"name": "DenoisingStage", "duration_ms": 700.0}],
    "denoise_steps_ms": [{"step": 0, "duration_ms": 400.0}, {"step": 1, "duration_ms": 300.0}],
}


class Server:
    """Answers like SGLang's, writes the dump that a request names, and remembers the bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.polls = ["in_progress", "completed"]
        self.files: dict[str, bytes] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                outer.files[body["perf_dump_path"]] = json.dumps(DUMP).encode()
                image = self.path.startswith("/v1/images")
                self.say(
                    {"data": [{"b64_json": PICTURE}], "peak_memory_mb": 12.5}
                    if image
                    else {"id": "job", "status": "queued"}
                )

            def do_GET(self) -> None:
                if self.path.endswith("/content"):
                    self.send_response(200)
                    self.send_header("Content-Type", "video/mp4")
                    self.end_headers()
                    self.wfile.write(b"a video")
                else:
                    self.say(
                        {
                            "id": "job",
                            "status": outer.polls.pop(0),
                            "error": {"message": "no memory"},
                            "peak_memory_mb": None,
                        }
                    )

            def say(self, values: dict[str, Any]) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(values).encode())

            def log_message(self, *_: object) -> None:
                """Nothing to say."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def client(self, read: Any = None, **workload: Any) -> SglangClient:
        files = ServerFiles("/scratch", read or (lambda path: self.files.get(path, b"")))
        return SglangClient(
            f"http://127.0.0.1:{self.http.server_port}",
            replace(SETTINGS.workload, **workload),
            files,
            always={"generator_device": "cpu"},
            request_timeout_s=5,
        )


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.http.shutdown()
    found.http.server_close()
    thread.join(5)


def test_an_image_comes_lossless_with_its_times(server: Server):
    response = server.client(extra_params={"true_cfg_scale": 4.0}).generate(2)
    assert (response.status, response.content, response.peak_memory_mb) == ("ok", b"a picture", 12.5)
    assert response.told is not None
    assert response.told.steps_s == (0.4, 0.3)
    (body,) = server.bodies
    assert body["num_inference_steps"] == 2
    assert (body["response_format"], body["output_format"], body["generator_device"]) == ("b64_json", "png", "cpu")
    assert body["true_cfg_scale"] == 4.0
    assert "profile" not in body and "num_frames" not in body


def test_a_video_is_a_job_that_is_asked_for_until_it_is_there(server: Server):
    asking = server.client(endpoint="video-async", frames=9, fps=8, negative_prompt="fog", flow_shift=3.0)
    response = asking.generate(2)
    assert (response.status, response.content, response.media) == ("ok", b"a video", "video/mp4")
    assert response.told is not None and response.told.stages_s["DenoisingStage"] == 0.7
    (body,) = server.bodies
    assert body["output_path"] == "/scratch"  # without a folder no video can be fetched
    assert (body["num_frames"], body["fps"], body["negative_prompt"], body["flow_shift"]) == (9, 8, "fog", 3.0)


def test_a_video_that_fails_is_an_error_with_its_reason(server: Server):
    server.polls = ["failed"]
    response = server.client(endpoint="video-async").generate(2)
    assert response.status == "error"
    assert "no memory" in response.error


def test_every_request_names_a_file_of_its_own(server: Server):
    first, second = server.client(), server.client()
    for asking in (first, first, second):
        asking.generate(2)
    assert len({body["perf_dump_path"] for body in server.bodies}) == 3
    assert all(body["perf_dump_path"].startswith("/scratch/") for body in server.bodies)


def test_times_that_cannot_be_read_back_cost_no_answer(server: Server):
    def unreadable(path: str) -> bytes:
        raise HostError("no answer", where=path)

    assert server.client(unreadable).generate(2).told is None
    assert server.client(lambda _: b"{").generate(2).status == "ok"


def test_the_profiler_is_a_matter_of_the_request(server: Server):
    asking = server.client()
    assert asking.start_profile() is None
    asking.generate(3)
    assert asking.stop_profile() is None
    asking.generate(3)
    captured, plain = server.bodies
    assert (captured["profile"], captured["num_profiled_timesteps"]) == (True, 1)
    assert "profile" not in plain
