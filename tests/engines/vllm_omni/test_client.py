"""The client of the serving protocol against a small server."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.vllm_omni.client import OmniClient
from anchormatrix.records.settings.whole import Settings


@pytest.fixture(scope="module")
def settings() -> Settings:
    """The default configuration."""
    return load_settings(DEFAULT_FILE)


class Handler(BaseHTTPRequestHandler):
    """Answers by the table that a test fills; remembers what it was asked."""

    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}
    asked: ClassVar[list[tuple[str, bytes]]] = []
    headers_sent: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        self.asked.append((f"{self.command} {self.path}", body))
        status, data = self.answers.get(f"{self.command} {self.path}", (404, b"not here"))
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **self.headers_sent}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server on loopback, stopped afterwards."""
    Handler.answers, Handler.asked, Handler.headers_sent = {}, [], {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(5)


def client(url: str, settings: Settings, **workload: Any) -> OmniClient:
    return OmniClient(url, replace(settings.workload, **workload), "model", request_timeout_s=5)


def test_ready_only_when_health_says_so(url: str, settings: Settings) -> None:
    asking = client(url, settings)
    Handler.answers["GET /health"] = (503, b"")
    assert not asking.ready()
    Handler.answers["GET /health"] = (200, b"")
    assert asking.ready()
    assert not client("http://127.0.0.1:9", settings).ready()


def test_a_video_is_fingerprinted(url: str, settings: Settings) -> None:
    Handler.answers["POST /v1/videos/sync"] = (200, b"video")
    response = client(url, settings, extra_params={"a": 1}).generate(4)
    assert (response.status, response.fingerprint) == ("ok", "0cab1c9617404faf")
    body = Handler.asked[0][1].decode()
    for name, value in {
        "num_inference_steps": "4",
        "seed": "42",
        "num_frames": "81",
        "extra_params": '{"a": 1}',
    }.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n' in body


def test_an_asynchronous_video_is_polled_until_it_is_done(url: str, settings: Settings) -> None:
    Handler.answers["POST /v1/videos"] = (200, b'{"id": "v1", "status": "queued"}')
    Handler.answers["GET /v1/videos/v1"] = (200, b'{"id": "v1", "status": "completed"}')
    Handler.answers["GET /v1/videos/v1/content"] = (200, b"video")
    assert client(url, settings, endpoint="video-async").generate(4).fingerprint == "0cab1c9617404faf"
    Handler.answers["GET /v1/videos/v1"] = (200, b'{"status": "failed", "error": "no memory"}')
    failed = client(url, settings, endpoint="video-async").generate(4)
    assert (failed.status, failed.error) == ("error", "job v1 failed: no memory")


def test_an_image_is_fingerprinted_without_the_time_it_was_made(url: str, settings: Settings) -> None:
    data = base64.b64encode(b"image").decode()
    prints = set()
    for created in (1, 2):
        answer = json.dumps({"created": created, "data": [{"b64_json": data}]}).encode()
        Handler.answers["POST /v1/images/generations"] = (200, answer)
        prints.add(client(url, settings, endpoint="image").generate(4).fingerprint)
    assert len(prints) == 1
    assert json.loads(Handler.asked[0][1])["size"] == "832x480"


@pytest.mark.parametrize(
    ("told", "peak"), [("9012.500", 9012.5), ("0.000", None), ("nan", None), ("inf", None), ("much", None)]
)
def test_an_answer_tells_the_device_memory_it_took(url: str, settings: Settings, told: str, peak: float | None) -> None:
    Handler.headers_sent = {"X-Peak-Memory-MB": told}
    Handler.answers["POST /v1/videos/sync"] = (200, b"video")
    assert client(url, settings).generate(4).peak_memory_mb == peak


def test_a_job_and_an_image_tell_it_in_their_body(url: str, settings: Settings) -> None:
    Handler.answers["POST /v1/videos"] = (200, b'{"id": "v1", "status": "completed", "peak_memory_mb": 9012.5}')
    Handler.answers["GET /v1/videos/v1/content"] = (200, b"video")
    assert client(url, settings, endpoint="video-async").generate(4).peak_memory_mb == 9012.5
    for metrics, peak in ((b'{"peak_memory_mb": 9012.5}', 9012.5), (b"null", None)):
        answer = b'{"data": [{"b64_json": "aW1hZ2U="}], "metrics": ' + metrics + b"}"
        Handler.answers["POST /v1/images/generations"] = (200, answer)
        assert client(url, settings, endpoint="image").generate(4).peak_memory_mb == peak


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ((500, b"boom"), "error", "HTTP 500: boom"),
        ((0, b""), "lost", ""),
        ((200, b'{"data": []}'), "error", "no image"),
        ((200, b"[]"), "error", "not a JSON object"),
    ],
)
def test_what_goes_wrong_is_told_apart(
    url: str, settings: Settings, answer: tuple[int, bytes], status: str, words: str
) -> None:
    Handler.answers["POST /v1/images/generations"] = answer
    response = client(url, settings, endpoint="image").generate(4)
    assert response.status == status
    assert words in response.error


def test_the_profiler_says_what_went_wrong(url: str, settings: Settings) -> None:
    Handler.answers["POST /start_profile"] = (200, b"")
    asking = client(url, settings)
    assert asking.start_profile() is None
    assert asking.stop_profile() == "/stop_profile: HTTP 404: not here"
