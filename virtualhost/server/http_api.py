"""The serving protocol over HTTP as vllm-omni 0.30.0 has it: health, videos at once or as jobs, images, profiling.

Of ``entrypoints/openai/``: an answer tells what the first rank spent. A video's headers ``X-Stage-Durations``,
``X-Peak-Memory-MB``, ``X-Inference-Time-S``, ``X-Request-Id`` and ``X-Model`` (``api_server.py:2767-2778``), a job's
``stage_durations``, ``peak_memory_mb`` and ``inference_time_s`` (``video/generation/helpers.py:434-445``), an image's
``metrics`` (``api_server.py:1985-1995``). Times are virtual seconds. The port is bound at once and listens when the
model is loaded (``api_server.py:242``).
"""

from __future__ import annotations

import base64
import json
import re
import socketserver
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from virtualhost.server.exchange import Ask, Outcome, read_ask


class Engine(Protocol):
    """What the protocol needs of the server behind it."""

    profiling: bool
    served: str

    def generate(self, ask: Ask) -> Outcome | None:
        """Serve a request; None when the server ended while it ran."""

    def peak_memory_mb(self) -> float:
        """Device memory of the first rank at its peak, in units of 2^20 bytes."""

    def access(self, endpoint: str, status: int) -> None:
        """Write a line of the access log."""

    def start_profile(self) -> bool:
        """Capture a step of the next request; False: the profiler failed."""

    def stop_profile(self) -> None:
        """Write what was captured."""


@dataclass
class Job:
    """An asynchronous video, with what its answers tell once it is done."""

    id: str
    prompt: str
    size: str
    status: str = "queued"
    content: bytes = b""
    told: Mapping[str, Any] = field(default_factory=dict)


class Api(ThreadingHTTPServer):
    """Listens on loopback; binding twice is an error, as for any server."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], engine: Engine, *, handler: type[BaseHTTPRequestHandler] | None = None
    ) -> None:
        self.engine = engine
        self.jobs: dict[str, Job] = {}
        super().__init__(address, handler or _Handler, bind_and_activate=False)
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    def listen(self) -> None:
        """Take connections from now on."""
        self.server_activate()

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
        if self.path == "/health":
            self._json(200, {"status": "healthy"})
        elif self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": self.server.engine.served, "object": "model"}]})
        elif match := re.fullmatch(r"/v1/videos/([\w-]+)(/content)?", self.path):
            self._video(match[1], content=bool(match[2]))
        else:
            self._refuse(404, "Not Found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path in ("/v1/videos/sync", "/v1/videos", "/v1/images/generations"):
            try:
                ask = read_ask(self.path, self.headers.get("Content-Type", ""), body, self.server.engine.served)
            except ValueError as error:
                self._refuse(400, str(error))
                return
            self._asynchronous(ask) if self.path == "/v1/videos" else self._synchronous(ask)
        elif self.path in ("/start_profile", "/stop_profile") and self.server.engine.profiling:
            self._profile(start=self.path == "/start_profile")
        else:
            self._refuse(404, "Not Found")

    def _synchronous(self, ask: Ask) -> None:
        engine = self.server.engine
        outcome = engine.generate(ask)
        if outcome is None or outcome.response in ("lost", "none"):
            self.close_connection = True  # the client never gets an answer
        elif outcome.response == "error":
            self._refuse(500, "generation failed", logged=True)
        elif ask.kind == "image":
            data = [{"b64_json": base64.b64encode(outcome.content).decode(), "url": None, "revised_prompt": None}]
            metrics = {"stage_durations": dict(outcome.durations), "peak_memory_mb": engine.peak_memory_mb()}
            size = f"{ask.width}x{ask.height}"
            answer = {"created": int(time.time()), "data": data, "output_format": "png", "size": size}
            self._json(200, {**answer, "cot_output": None, "metrics": metrics}, logged=True)
        else:
            headers = {
                "X-Request-Id": f"video_sync-{uuid.uuid4().hex}",
                "X-Model": engine.served,
                "X-Inference-Time-S": f"{outcome.virtual_s:.3f}",
                "X-Stage-Durations": json.dumps(dict(outcome.durations), separators=(",", ":")),
                "X-Peak-Memory-MB": f"{engine.peak_memory_mb():.3f}",
            }
            self._reply(200, outcome.content, "video/mp4", headers, logged=True)

    def _asynchronous(self, ask: Ask) -> None:
        job = Job(f"video_gen_{uuid.uuid4().hex}", ask.prompt, f"{ask.width}x{ask.height}")
        self.server.jobs[job.id] = job
        self._json(200, self._told(job))
        threading.Thread(target=self._work, args=(job, ask), daemon=True).start()

    def _work(self, job: Job, ask: Ask) -> None:
        job.status = "in_progress"
        outcome = self.server.engine.generate(ask)
        if outcome is not None and outcome.response == "lost":
            return  # the job is done, but its end is never told
        job.content = outcome.content if outcome is not None else b""
        if outcome is not None and job.content:
            peak_mb = self.server.engine.peak_memory_mb()
            job.told = {
                "inference_time_s": outcome.virtual_s,
                "stage_durations": dict(outcome.durations),
                "peak_memory_mb": peak_mb,
            }
        job.status = "completed" if job.content else "failed"

    def _told(self, job: Job) -> dict[str, Any]:
        """A job as ``VideoResponse`` (``protocol/videos.py:370-430``)."""
        done, failed = job.status == "completed", job.status == "failed"
        error = {"code": 500, "message": "generation failed"} if failed else None
        return {
            "id": job.id,
            "object": "video",
            "model": self.server.engine.served,
            "prompt": job.prompt,
            "status": job.status,
            "size": job.size,
            "progress": 100 * done,
            "error": error,
            "media_type": "video/mp4",
            "file_name": f"{job.id}.mp4" if done else None,
            "metrics": None,
            "inference_time_s": None,
            "stage_durations": {},
            "peak_memory_mb": 0.0,
            **job.told,
        }

    def _video(self, job_id: str, *, content: bool) -> None:
        """A job's state; a failed one is answered with its own status (``api_server.py:2835-2843``, ``:2930-2944``)."""
        job = self.server.jobs.get(job_id)
        if job is None:
            self._refuse(404, "Video not found")
        elif not content:
            self._json(500 if job.status == "failed" else 200, self._told(job))
        elif job.status == "failed":
            self._refuse(422, "Video generation failed. Check job status for error details.")
        elif job.status != "completed":
            self._refuse(404, "Generation is still in-progress")
        else:
            self._reply(200, job.content, "video/mp4")

    def _profile(self, *, start: bool) -> None:
        if not start:
            self.server.engine.stop_profile()
        elif not self.server.engine.start_profile():
            self._refuse(500, "Failed to start profiler: Could not start profiler")
            return
        self._json(200, {"status": "SUCCESS"})

    def _refuse(self, status: int, message: str, *, logged: bool = False) -> None:
        """Answer with vLLM's error object."""
        kind = HTTPStatus(status).phrase.replace(" ", "") + ("Error" if status == 400 else "")
        error = {"message": message, "type": kind, "param": None, "code": status}
        self._json(status, {"error": error}, logged=logged)

    def _json(self, status: int, value: dict[str, Any], *, logged: bool = False) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json", logged=logged)

    def _reply(
        self,
        status: int,
        body: bytes,
        kind: str,
        more: Mapping[str, str] | None = None,
        *,
        logged: bool = False,
    ) -> None:
        """Answer; ``logged``: the request's own log holds its access line already."""
        if not logged:
            self.server.engine.access(f"{self.command} {self.path}", status)
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
