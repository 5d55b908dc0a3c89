"""The serving protocol over HTTP: health, synchronous and asynchronous videos, images, profiling.

An answer tells the device memory at its peak where vllm-omni 0.30.0 does: ``X-Peak-Memory-MB`` of a synchronous video
(``entrypoints/openai/api_server.py:2777``), ``peak_memory_mb`` of a job (``protocol/videos.py:425``) and in an image's
metrics (``api_server.py:1994``).
"""

from __future__ import annotations

import base64
import json
import re
import socketserver
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, TypeVar

from virtualhost.server.exchange import Ask, Outcome

_Number = TypeVar("_Number", int, float)


class Engine(Protocol):
    """What the protocol needs of the server behind it."""

    ready: bool
    profiling: bool

    def generate(self, ask: Ask) -> Outcome | None:
        """Serve a request; None when the server ended while it ran."""

    def peak_memory_mb(self) -> float:
        """Device memory of the first rank at its peak, in units of 2^20 bytes."""

    def log(self, text: str) -> None:
        """Write to the server's log."""

    def start_profile(self) -> bool:
        """Capture a step of the next request; False: the profiler failed."""

    def stop_profile(self) -> None:
        """Write what was captured."""


@dataclass
class Job:
    """An asynchronous video."""

    id: str
    status: str = "queued"
    content: bytes = b""


class Api(ThreadingHTTPServer):
    """Listens on loopback; binding twice is an error, as for any server."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], engine: Engine) -> None:
        self.engine = engine
        self.jobs: dict[str, Job] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # the inherited method asks the name service for a host name, which may take seconds
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event of this server's log."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """The session writes its own access lines."""

    def do_GET(self) -> None:
        engine = self.server.engine
        if self.path == "/health":
            self._reply(200 if engine.ready else 503, b"")
        elif self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "virtual", "object": "model"}]})
        elif match := re.fullmatch(r"/v1/videos/([\w-]+)(/content)?", self.path):
            self._video(match[1], content=bool(match[2]))
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        engine = self.server.engine
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not engine.ready:
            self._json(503, {"detail": "the engine is starting"})
        elif self.path in ("/v1/videos/sync", "/v1/videos", "/v1/images/generations"):
            try:
                ask = _ask(self.path, self.headers.get("Content-Type", ""), body)
            except ValueError as error:
                self._json(400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
                return
            self._asynchronous(ask) if self.path == "/v1/videos" else self._synchronous(ask)
        elif self.path in ("/start_profile", "/stop_profile") and engine.profiling:
            self._profile(start=self.path == "/start_profile")
        else:
            self._json(404, {"detail": "Not Found"})

    def _synchronous(self, ask: Ask) -> None:
        outcome = self.server.engine.generate(ask)
        if outcome is None or outcome.response in ("lost", "none"):
            self.close_connection = True  # the client never gets an answer
        elif outcome.response == "error":
            self._json(500, {"error": {"message": "generation failed", "type": "InternalServerError", "code": 500}})
        elif ask.kind == "image":
            data = [{"b64_json": base64.b64encode(outcome.content).decode()}]
            metrics = {"stage_durations": None, "peak_memory_mb": self.server.engine.peak_memory_mb()}
            self._json(200, {"created": 0, "data": data, "metrics": metrics})
        else:
            peak = {"X-Peak-Memory-MB": f"{self.server.engine.peak_memory_mb():.3f}"}
            self._reply(200, outcome.content, "video/mp4", peak)

    def _asynchronous(self, ask: Ask) -> None:
        job = Job(f"video_{uuid.uuid4().hex}")
        self.server.jobs[job.id] = job
        threading.Thread(target=self._work, args=(job, ask), daemon=True).start()
        self._json(200, {"id": job.id, "object": "video", "status": job.status, "progress": 0})

    def _work(self, job: Job, ask: Ask) -> None:
        job.status = "in_progress"
        outcome = self.server.engine.generate(ask)
        if outcome is not None and outcome.response == "lost":
            return  # the job is done, but its end is never told
        job.content = outcome.content if outcome is not None else b""
        job.status = "completed" if job.content else "failed"

    def _video(self, job_id: str, *, content: bool) -> None:
        job = self.server.jobs.get(job_id)
        if job is None or (content and job.status != "completed"):
            self._json(404, {"detail": f"no video {job_id}"})
        elif content:
            self._reply(200, job.content, "video/mp4")
        else:
            error = {"message": "generation failed"} if job.status == "failed" else None
            done = job.status == "completed"
            answer = {"id": job.id, "object": "video", "status": job.status, "progress": 100 * done, "error": error}
            self._json(200, {**answer, "peak_memory_mb": self.server.engine.peak_memory_mb() if done else 0.0})

    def _profile(self, *, start: bool) -> None:
        if not start:
            self.server.engine.stop_profile()
            self._reply(200, b"")
        elif self.server.engine.start_profile():
            self._reply(200, b"")
        else:
            self._json(500, {"detail": "the profiler could not be started"})

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str = "text/plain", more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _ask(path: str, kind: str, body: bytes) -> Ask:
    """Read the fields of a request. Raises ValueError naming the field that is missing or wrong."""
    fields = _multipart(kind, body) if kind.startswith("multipart/form-data") else _json_fields(body)
    if not fields.get("prompt"):
        raise ValueError("prompt: field required")
    default = Ask(50, f"POST {path}")
    width, height = default.width, default.height
    if "size" in fields:
        sizes = re.fullmatch(r"(\d+)x(\d+)", str(fields["size"]))
        if sizes is None:
            raise ValueError(f"size: {fields['size']!r} is not WIDTHxHEIGHT")
        width, height = int(sizes[1]), int(sizes[2])
    return Ask(
        steps=_number(fields, "num_inference_steps", default.steps, least=1),
        endpoint=default.endpoint,
        seed=_number(fields, "seed", default.seed),
        guidance=_number(fields, "guidance_scale", default.guidance),
        width=_number(fields, "width", width, least=1),
        height=_number(fields, "height", height, least=1),
        frames=_number(fields, "num_frames", default.frames, least=1),
        fps=_number(fields, "fps", default.fps, least=1),
        prompt=str(fields["prompt"]),
    )


def _number(fields: dict[str, Any], name: str, default: _Number, *, least: float | None = None) -> _Number:
    if name not in fields or fields[name] in ("", None):
        return default
    try:
        value = type(default)(fields[name])
    except (TypeError, ValueError):
        raise ValueError(f"{name}: {fields[name]!r} is not a number") from None
    if least is not None and value < least:
        raise ValueError(f"{name}: {value} is below {least}")
    return value


def _json_fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body or b"{}")
    except ValueError:
        raise ValueError("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("the body is not a JSON object")
    return fields


def _multipart(kind: str, body: bytes) -> dict[str, Any]:
    match = re.search(r'boundary="?([^";]+)"?', kind)
    if match is None:
        raise ValueError("multipart/form-data without a boundary")
    fields: dict[str, Any] = {}
    for part in body.split(b"--" + match[1].encode())[1:-1]:
        head, _, value = part.strip(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]*)"', head)
        if name is not None:
            fields[name[1].decode(errors="replace")] = value.decode(errors="replace")
    return fields
