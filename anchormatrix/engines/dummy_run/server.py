"""The serving protocol over HTTP, with the standard library only; the work is done by the rank processes."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from anchormatrix.engines.dummy_run.arguments import ServeOptions
from anchormatrix.engines.dummy_run.logs import server_tag
from anchormatrix.engines.dummy_run.model.payload import PayloadError, parse_form, parse_json, to_request
from anchormatrix.engines.dummy_run.workers import RequestError, Workers, WorkersError

_BODY_LIMIT = 16 << 20
# The request that vllm-omni 0.30.0 runs before it serves (diffusion/diffusion_engine.py:1407-1428)
WARM_UP = {
    "prompt": "dummy run",
    "negative_prompt": "",
    "width": 512,
    "height": 512,
    "frames": 1,
    "steps": 2,
    "seed": 0,
    "guidance_scale": 0.0,
    "flow_shift": 3.0,
}


@dataclass
class Job:
    """One asynchronous video."""

    name: str
    created: int
    status: str = "queued"
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class Application:
    """What the handlers share: the ranks, readiness, jobs, and the reason to stop."""

    def __init__(self, options: ServeOptions, workers: Workers, log: logging.Logger) -> None:
        self.options = options
        self.workers = workers
        self.log = log
        self.ready = threading.Event()
        self.stop = threading.Event()
        self.failure = ""
        self.jobs: dict[str, Job] = {}
        self._generating = threading.Lock()

    def generate(self, values: dict[str, Any]) -> dict[str, Any]:
        """Run one request on all ranks. Returns rank 0's answer, with ``ranks_agree`` and ``seconds`` added."""
        request = to_request(values, self.options.model)
        asked = time.perf_counter()
        with self._generating:
            if self.options.model.is_video:  # of an image nothing is said (entrypoints/openai/api_server.py:2205)
                self.log.info(
                    "Video sampling params: steps=%d guidance=%s guidance_2=None seed=%d",
                    request["steps"],
                    request["guidance_scale"],
                    request["seed"],
                )
            begin = time.perf_counter()
            answers = self.ask("generate", request=request)
            seconds = time.perf_counter() - begin
        agree = len({answer["fingerprint"] for answer in answers}) == 1
        if not agree:
            self.log.warning("The ranks hold different latents after the same request")
        waited_ms = {"queue_wait_ms": (begin - asked) * 1000, "stage_0_gen_ms": seconds * 1000}
        durations = answers[0]["durations"] | waited_ms  # as entrypoints/omni_base.py:614-628 mixes them
        return {**answers[0], "durations": durations, "ranks_agree": agree, "seconds": seconds}

    def ask(self, op: str, **values: Any) -> list[dict[str, Any]]:
        """Ask all ranks; when they are no longer together the server ends."""
        try:
            return self.workers.ask(op, **values)
        except WorkersError as error:
            self.fail(str(error))
            raise

    def fail(self, reason: str) -> None:
        """End the server because of a failure; only the first reason counts."""
        if not self.stop.is_set():
            self.failure = reason
            self.log.error("Engine core failed: %s", reason)
            self.stop.set()

    def run_job(self, job: Job, values: dict[str, Any]) -> None:
        """Body of the thread of an asynchronous video."""
        job.status = "in_progress"
        try:
            job.result = self.generate(values)
            job.status = "completed"
        except (RequestError, WorkersError, PayloadError) as error:
            job.status, job.error = "failed", str(error)


class Server(ThreadingHTTPServer):
    """The listening socket, taken before the ranks start so that a taken port is known at once."""

    daemon_threads = True
    allow_reuse_address = True
    application: Application

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business; anything else is an error of this server and is logged whole."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            self.application.log.error("Request of %s failed", client_address, exc_info=error)


class Handler(BaseHTTPRequestHandler):
    """Routes. Every answer is JSON, but for a video's content."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        application = self.server.application
        parts = self.path.strip("/").split("/")
        if self.path == "/health":
            self._send(HTTPStatus.OK if application.ready.is_set() else HTTPStatus.SERVICE_UNAVAILABLE, {})
        elif self.path == "/v1/models":
            self._send(HTTPStatus.OK, {"object": "list", "data": [{"id": application.options.model.name}]})
        elif parts[:2] == ["v1", "videos"] and len(parts) in (3, 4):
            self._job(application.jobs.get(parts[2]), content=parts[3:] == ["content"])
        else:
            self._fail(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        routes = {
            "/v1/videos/sync": self._video,
            "/v1/videos": self._submit,
            "/v1/images/generations": self._image,
            "/start_profile": self._profile,
            "/stop_profile": self._profile,
        }
        route = routes.get(self.path)
        if route is None:
            self._fail(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
            return
        if not self.server.application.ready.is_set():
            self._fail(HTTPStatus.SERVICE_UNAVAILABLE, "the engine is starting")
            return
        try:
            route(body)
        except PayloadError as error:
            self._fail(HTTPStatus.BAD_REQUEST, str(error))
        except (RequestError, WorkersError) as error:
            self._fail(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _video(self, body: bytes) -> None:
        self._want_video(True)
        values = parse_form(self.headers.get("Content-Type", ""), body)
        self._send_video(f"video_sync-{uuid.uuid4().hex}", self.server.application.generate(values))

    def _submit(self, body: bytes) -> None:
        self._want_video(True)
        application = self.server.application
        values = parse_form(self.headers.get("Content-Type", ""), body)
        to_request(values, application.options.model)
        job = Job(f"video_gen_{uuid.uuid4().hex}", int(time.time()))
        application.jobs[job.name] = job
        threading.Thread(target=application.run_job, args=(job, values), daemon=True).start()
        self._send(HTTPStatus.OK, self._describe(job))

    def _image(self, body: bytes) -> None:
        self._want_video(False)
        values = parse_json(body)
        if values.get("n", 1) != 1:
            raise PayloadError(f"n {values['n']!r}: this server makes one image per request")
        answer = self.server.application.generate(values)
        result = {key: answer[key] for key in ("fingerprint", "digest", "ranks_agree", "iterations")}
        data = [{"b64_json": answer["content"]}]
        metrics = {"stage_durations": answer["durations"], "peak_memory_mb": answer["peak_memory_mb"] or None}
        self._send(HTTPStatus.OK, {"created": int(time.time()), "data": data, "metrics": metrics, **result})

    def _profile(self, _: bytes) -> None:
        if self.server.application.options.profiler is None:
            self._fail(HTTPStatus.NOT_FOUND, "no profiler is configured; start the server with --profiler-config")
            return
        answers = self.server.application.ask(self.path.strip("/"))
        files = [answer["file"] for answer in answers if answer.get("file")]
        self._send(HTTPStatus.OK, {"status": "SUCCESS", "files": files})

    def _want_video(self, video: bool) -> None:
        spec = self.server.application.options.model
        if spec.is_video != video:
            right = "/v1/videos/sync" if spec.is_video else "/v1/images/generations"
            raise PayloadError(f"{spec.name} is served at {right}")

    def _job(self, job: Job | None, *, content: bool) -> None:
        if job is None:
            self._fail(HTTPStatus.NOT_FOUND, f"no such video: {self.path}")
        elif not content:  # a failed job is answered with its own status (api_server.py:2835-2843)
            failed = job.status == "failed"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR if failed else HTTPStatus.OK, self._describe(job))
        elif job.status == "completed":
            self._send_video(job.name, job.result)
        else:
            self._fail(HTTPStatus.CONFLICT, f"the video is {job.status}")

    def _describe(self, job: Job) -> dict[str, Any]:
        values: dict[str, Any] = {
            "id": job.name,
            "object": "video",
            "created_at": job.created,
            "status": job.status,
            "model": self.server.application.options.model.name,
        }
        if job.status == "completed":
            values["fingerprint"] = job.result["fingerprint"]
            values["inference_time_s"] = job.result["seconds"]
            values["stage_durations"] = job.result["durations"]
            values["peak_memory_mb"] = job.result["peak_memory_mb"]
        if job.error:
            values["error"] = {"message": job.error}
        return values

    def _send_video(self, name: str, answer: dict[str, Any]) -> None:
        """The latents' canonical bytes, so that the sha256 of what the client got is the fingerprint in the log."""
        headers = {
            "X-Request-Id": name,
            "X-Model": self.server.application.options.model.name,
            "X-Inference-Time-S": f"{answer['seconds']:.3f}",
            "X-Stage-Durations": json.dumps(answer["durations"], separators=(",", ":")),
            "X-Peak-Memory-MB": f"{answer['peak_memory_mb']:.3f}",
            "X-Fingerprint": answer["fingerprint"],
            "X-Digest": json.dumps(answer["digest"]),
            "X-Ranks-Agree": str(answer["ranks_agree"]).lower(),
        }
        self._reply(HTTPStatus.OK, base64.b64decode(answer["content"]), "application/octet-stream", headers)

    def _body(self) -> bytes | None:
        """Read the body; answers and returns None when its length is missing, wrong or beyond the limit."""
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or "chunked" in self.headers.get("Transfer-Encoding", ""):
            self.close_connection = True
            self._fail(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
            return None
        if int(length) > _BODY_LIMIT:
            self.close_connection = True
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {_BODY_LIMIT} bytes")
            return None
        return self.rfile.read(int(length))

    def _fail(self, status: HTTPStatus, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": status.phrase, "code": int(status)}})

    def _send(self, status: HTTPStatus, values: dict[str, Any]) -> None:
        self._reply(status, json.dumps(values).encode(), "application/json", {})

    def _reply(self, status: HTTPStatus, data: bytes, kind: str, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True
            _access(f"{self.address_string()}:{self.client_address[1]} - client disconnected before response was sent")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write the access line as an ASGI server does."""
        status = HTTPStatus(int(code))
        client = f"{self.address_string()}:{self.client_address[1]}"
        _access(f'{client} - "{self.command} {self.path} {self.request_version}" {status.value} {status.phrase}')

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Malformed HTTP goes to the log like any other line."""
        _access(f"{self.address_string()} - {format % args}")


def _access(text: str) -> None:
    printable = "".join(char if char.isprintable() else "?" for char in text)
    sys.stdout.write(f"{server_tag()} INFO:     {printable}\n")
    sys.stdout.flush()
