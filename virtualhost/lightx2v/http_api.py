"""LightX2V's routes, f8aee98: health, tasks that are made, polled and fetched (``server/api/tasks/``).

Fields have the defaults of ``server/schema.py:51-83``; unknown ones are dropped, a wrong type is pydantic's answer.
"""

from __future__ import annotations

import json
import re
import secrets
import string
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from virtualhost.lightx2v.log import Task
from virtualhost.server.http_api import Api, Engine


@dataclass
class Made:
    """A task that a client asked for (``server/task_manager.py:29-54``)."""

    ask: Task
    status: str = "pending"
    content: bytes = b""
    error: str | None = None


class TaskApi(Api):
    """Tasks by their names, served one at a time."""

    def __init__(self, address: tuple[str, int], engine: Engine, *, guidance: float, steps: int) -> None:
        super().__init__(address, engine, handler=_Handler)
        self.guidance, self.steps = guidance, steps
        self.tasks: dict[str, Made] = {}

    def work(self, made: Made) -> None:
        """Serve a task; one whose answer is lost is never told to be done."""
        made.status = "processing"
        outcome = self.engine.generate(made.ask)
        if outcome is not None and outcome.response == "lost":
            return
        made.content = outcome.content if outcome is not None else b""
        made.error = None if made.content else "the pipeline failed"
        made.status = "completed" if made.content else "failed"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: TaskApi

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """The session writes its own access lines."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif match := re.fullmatch(r"/v1/tasks/([\w-]+)/(status|result)", self.path):
            self._told(match[1], result=match[2] == "result")
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path not in ("/v1/tasks/image/", "/v1/tasks/video/"):
            self._json(404, {"detail": "Not Found"})
            return
        try:
            ask = read_task(self.path, body, guidance=self.server.guidance, steps=self.server.steps)
        except ValueError as error:
            place, _, said = str(error).partition(": ")
            self._json(422, {"detail": [{"type": "value_error", "loc": ["body", place], "msg": said}]})
            return
        made = self.server.tasks[ask.id] = Made(ask)
        self._json(200, {"task_id": ask.id, "task_status": "pending", "save_result_path": ask.id})
        threading.Thread(target=self.server.work, args=(made,), daemon=True).start()

    def _told(self, name: str, *, result: bool) -> None:
        """A task's state or output (``server/api/tasks/common.py:69``, ``:77``)."""
        made = self.server.tasks.get(name)
        if made is None:
            self._json(404, {"detail": "Task not found"})
        elif not result:
            state = {"task_id": name, "status": made.status, "error": made.error, "error_type": ""}
            self._json(200, {**state, "save_result_path": f"{name}.png" if made.content else name})
        elif made.status != "completed":
            self._json(404, {"detail": "Task not completed"})
        else:
            self._reply(200, made.content, "image/png" if made.ask.kind == "image" else "video/mp4")

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json")

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self.server.engine.access(f"{self.command} {self.path}", status)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def read_task(path: str, body: bytes, *, guidance: float, steps: int) -> Task:
    """Read the fields of a task. Raises ValueError that begins with the field that is wrong."""
    try:
        fields = json.loads(body or b"{}")
    except ValueError:
        raise ValueError("body: JSON decode error") from None
    if not isinstance(fields, dict):
        raise ValueError("body: Input should be a valid dictionary or object to extract fields from")
    shape = fields.get("target_shape", [])
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        raise ValueError("target_shape: Input should be a valid list")
    height, width = shape if len(shape) == 2 else (928, 1664)  # 16:9, qwen_image_runner.py:437
    return Task(
        steps=_whole(fields, "infer_steps", steps),
        endpoint=f"POST {path}",
        seed=_whole(fields, "seed", secrets.randbelow(2**32)),
        guidance=guidance,
        width=width,
        height=height,
        frames=_whole(fields, "target_video_length", 81) if "/video" in path else 1,
        prompt=_text(fields, "prompt"),
        negative_prompt=_text(fields, "negative_prompt"),
        id=_text(fields, "task_id") or _name(),
    )


def _name() -> str:
    """A task's name (``utils/generate_task_id.py``)."""
    letters = string.ascii_uppercase + string.digits
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(5))


def _whole(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: Input should be a valid integer")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name}: Input should be a valid string")
    return value
