"""One client test-suite for every server that speaks the serving protocol, and the means to start such a server.

A check is a function of a running :class:`Serving`; it uses the engine's own client and log reading and the project's
profile reader, and asserts what any of them may rely on. ``CHECKS`` are all of them; the order does not matter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest
import requests
from free_ports import free_port

from anchormatrix.captures.open import load_capture
from anchormatrix.config.merge import load_settings
from anchormatrix.engines.base import Engine
from anchormatrix.engines.client import Client, Response, ServerFiles
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.timing import Request, ServeLog, closure_pct
from anchormatrix.measure.causes import known_failure
from anchormatrix.measure.proof import prove
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.whole import Settings

ROOT = Path(__file__).resolve().parents[2]
DUMMY_RUN_PYTHON = ROOT / ".venv-dummy-run" / "bin" / "python"
READY_S = 300.0  # SGLang imports for a minute and a half where others use the cores, too
needs_dummy_run = pytest.mark.skipif(
    not DUMMY_RUN_PYTHON.exists(), reason="the dummy run's environment is not there; make dummy-run-env makes it"
)


@dataclass(frozen=True)
class Kind:
    """How to start one kind of server: a configuration, what differs for a test, and the cards of two ranks.

    ``telling`` are the ranks that tell times and leave a trace (default: all); ``video`` is the path that takes videos.
    ``profiles`` and ``closes`` say whether its server captures, and whether it times the forward that holds the stages;
    ``wanting`` is a request that it refuses: a path, a body, and the field that it names; else one without a prompt is.
    ``on`` is a configuration whose host and cards are used instead.
    """

    name: str
    config: Path
    visible_env: Mapping[str, str]
    small: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    model: str = ""
    telling: int | None = None
    video: str = "/v1/videos/sync"
    profiles: bool = True
    closes: bool = True
    wanting: tuple[str, Mapping[str, object], str] | None = None
    on: Path | None = None

    def settings(self) -> Settings:
        """The configuration with the test's workload and model."""
        settings = load_settings(self.config)
        workload = msgspec.structs.replace(settings.workload, **self.small)
        if self.on is not None:
            there = load_settings(self.on)
            settings = msgspec.structs.replace(settings, host=there.host, device=there.device)
        engine = msgspec.structs.replace(settings.engine, model=self.model or settings.engine.model)
        return msgspec.structs.replace(settings, workload=workload, engine=engine)


VIRTUAL = Kind("virtual-host", ROOT / "config" / "config.yaml", {"ASCEND_RT_VISIBLE_DEVICES": "0,1"})
VIRTUAL_LIGHTX2V = Kind(
    "virtual-lightx2v",
    ROOT / "config" / "examples" / "nvidia-lightx2v.yaml",
    {"ASCEND_RT_VISIBLE_DEVICES": "0,1"},
    {"width": 512, "height": 512},
    profiles=False,
    closes=False,
    wanting=("/v1/tasks/image/", {"json": {"prompt": "a lighthouse", "infer_steps": "many"}}, "infer_steps"),
    on=ROOT / "config" / "config.yaml",
)
VIRTUAL_IMAGE = dataclasses.replace(VIRTUAL, name="virtual-host-image", small={"endpoint": "image"})
VIRTUAL_Z_IMAGE = dataclasses.replace(VIRTUAL_IMAGE, name="virtual-host-z-image", model="Tongyi-MAI/Z-Image-Turbo")
DUMMY_RUN = Kind(
    "dummy-run",
    ROOT / "config" / "examples" / "cpu-dummy-run.yaml",
    {},
    {"width": 64, "height": 64, "frames": 5},
)
DUMMY_RUN_IMAGE = dataclasses.replace(
    DUMMY_RUN,
    name="dummy-run-image",
    small={"endpoint": "image", "width": 128, "height": 128, "frames": 1},
    model="flux-tiny",
)
SGLANG_IMAGE = Kind(
    "sglang-image",
    ROOT / "config" / "examples" / "cpu-sglang.yaml",
    {"ANCHORMATRIX_CARD_CORES": "0;1"},
    {"width": 128, "height": 128},
    telling=1,
    video="/v1/videos",
)
SGLANG = dataclasses.replace(
    SGLANG_IMAGE,
    name="sglang",
    small={"endpoint": "video-async", "width": 128, "height": 128, "frames": 5, "fps": 8, "guidance_scale": 1.0},
    model=".venv-sglang/models/Wan2.1-T2V-1.3B-Diffusers",
)


class Serving:
    """A running server and what a client sees of it."""

    def __init__(
        self, kind: Kind, form: Form, folder: Path, *, port: int | None = None, more: tuple[str, ...] = ()
    ) -> None:
        self.kind, self.form, self.folder = kind, form, folder
        self.settings = kind.settings()
        self.engine: Engine = open_engine(self.settings)
        self.capture_dir = folder / "capture"
        self.log_path = folder / "server.log"
        self.port = port or free_port()
        self.process = self._start(more)
        self.responses: list[Response] = []
        self.client = self.client_of()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def client_of(self, **changed: object) -> Client:
        """A client with the test's workload, or one that differs in some fields."""
        workload = msgspec.structs.replace(self.settings.workload, **changed)
        engine = open_engine(msgspec.structs.replace(self.settings, workload=workload))
        return engine.client(self.url, ServerFiles(str(self.folder), _content))

    def generate(self, steps: int) -> Response:
        """A request of the test's own client, whose answer belongs to the log."""
        self.responses.append(self.client.generate(steps))
        return self.responses[-1]

    def log_text(self) -> str:
        """The log so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def log(self) -> ServeLog:
        """The log so far, parsed."""
        return self.engine.read(self.log_text(), self.responses)

    def wait_ready(self) -> None:
        """Wait for readiness; a server that ends first is an error that shows its log."""
        deadline = time.monotonic() + READY_S
        while not self.client.ready():
            assert self.process.poll() is None, self.log_text()[-3000:]
            assert time.monotonic() < deadline, self.log_text()[-3000:]
            time.sleep(0.1)

    @property
    def telling(self) -> int:
        """How many ranks tell times and leave a trace."""
        return self.kind.telling or self.form.cards

    def children(self) -> list[psutil.Process]:
        """Its rank processes."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int = signal.SIGINT, *, within_s: float = 30) -> int:
        """Ask it to stop and return its exit code."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(within_s)

    def _start(self, more: tuple[str, ...]) -> subprocess.Popen[bytes]:
        command = self.engine.serve_command(
            self.form, port=self.port, visible_env=self.kind.visible_env, capture_dir=str(self.capture_dir)
        ).placed(str(self.folder))
        for name, text in command.files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        environment = {**os.environ, **self.settings.host.env, **command.env}
        environment["VIRTUALHOST_STATE"] = str(self.folder / "state")
        path = os.pathsep.join([*(str(ROOT / part) for part in self.settings.host.path), environment["PATH"]])
        program = shutil.which(command.argv[0], path=path)
        with self.log_path.open("wb") as log:
            return subprocess.Popen(
                [program or command.argv[0], *command.argv[1:], *more],
                cwd=ROOT,
                env={**environment, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def _content(path: str) -> bytes:
    return Path(path).read_bytes() if Path(path).exists() else b""


@contextlib.contextmanager
def serving(kind: Kind, form: str, folder: Path) -> Iterator[Serving]:
    """Start a server, wait until it is ready, and see it gone afterwards, whatever happened."""
    server = Serving(kind, parse_form(form), folder)
    try:
        server.wait_ready()
        yield server
    finally:
        family = [] if server.process.poll() is not None else server.children()
        try:
            server.stop()
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
        for process in psutil.wait_procs(family, timeout=10)[1]:
            process.kill()


# -- the checks -------------------------------------------------------------------------------------------------------


def check_health_answers_200(server: Serving) -> None:
    assert requests.get(f"{server.url}/health", timeout=10).status_code == 200
    assert server.client.ready()


def check_a_request_is_answered_and_logged(server: Serving) -> None:
    response, request = whole_request(server, 3)
    assert (response.status, response.error) == ("ok", "")
    assert response.fingerprint is not None and len(response.fingerprint) == 16
    assert request.steps == 3
    assert request.iterations in (2, 3)
    assert request.diffuse_s is not None and request.diffuse_s > 0


def check_forward_is_the_sum_of_its_stages(server: Serving) -> None:
    if not server.kind.closes:
        return
    _, request = whole_request(server, 2)
    closure = closure_pct([request])
    assert closure is not None and closure < 10


def check_equal_requests_have_equal_outputs_and_a_seed_changes_them(server: Serving) -> None:
    first, second = server.generate(2), server.generate(2)
    other = server.client_of(seed=server.settings.workload.seed + 1).generate(2)
    assert first.fingerprint == second.fingerprint
    assert other.status == "ok"
    assert other.fingerprint != first.fingerprint


def check_the_start_up_log_proves_the_form(server: Serving) -> None:
    log = server.log()
    proof = prove(log, server.engine.expected_groups(server.form))
    assert proof.failures == ()
    assert proof.ok and proof.ranks_seen == server.form.cards
    assert known_failure(server.log_text()) is None


def check_few_lines_of_the_log_are_unusable(server: Serving) -> None:
    for _ in range(4):
        server.generate(2)
    log = server.log()
    assert log.stage_lines >= 20
    assert log.unusable_lines <= 0.1 * log.stage_lines


def check_a_request_that_wants_something_is_refused_and_the_server_goes_on(server: Serving) -> None:
    if server.kind.wanting:
        path, body, named = server.kind.wanting
    elif server.settings.workload.endpoint == "image":
        path, body, named = "/v1/images/generations", {"json": {"num_inference_steps": 2}}, "prompt"
    else:
        path, body, named = server.kind.video, {"files": {"num_inference_steps": (None, "2")}}, "prompt"
    answer = requests.post(server.url + path, timeout=10, **body)
    assert 400 <= answer.status_code < 500
    assert named in answer.text
    assert server.generate(2).status == "ok"


def check_an_unknown_path_is_not_found(server: Serving) -> None:
    assert requests.get(f"{server.url}/nothing", timeout=10).status_code == 404
    assert requests.post(f"{server.url}/v1/nothing", timeout=10).status_code == 404


def check_an_asynchronous_video_is_the_same_video(server: Serving) -> None:
    if server.settings.workload.endpoint != "video":
        return
    asynchronous = server.client_of(endpoint="video-async").generate(2)
    assert (asynchronous.status, asynchronous.error) == ("ok", "")
    assert asynchronous.fingerprint == server.generate(2).fingerprint


def check_a_profiled_request_leaves_a_trace_of_every_rank_that_tells(server: Serving) -> None:
    if not server.kind.profiles:
        assert "profiler" in (server.client.start_profile() or "")
        return
    assert server.client.start_profile() is None
    steps = server.engine.capture_request_steps(server.settings.matrix.tiers.few)
    assert server.generate(steps).status == "ok"
    assert server.client.stop_profile() is None
    capture = load_capture(server.capture_dir)
    assert sorted(capture.kernels["rank"].unique()) == list(range(server.telling))
    assert "alltoall" in set(capture.kernels["family"])
    assert (capture.kernels["core"] == "compute").any()


def check_a_lone_stop_of_the_profiler_does_not_end_the_server(server: Serving) -> None:
    server.client.stop_profile()
    assert server.generate(2).status == "ok"


CHECKS: tuple[Callable[[Serving], None], ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("check_")
)


def whole_request(server: Serving, steps: int) -> tuple[Response, Request]:
    """Send requests until every rank timed one whole: two workers on one physical line may spoil some."""
    for _ in range(4):
        index = len(server.log().requests)
        response = server.generate(steps)
        for _ in range(40):
            requests_logged = server.log().requests
            if len(requests_logged) > index:
                request = requests_logged[index]
                stages = (request.encode_s, request.decode_s, request.forward_s if server.kind.closes else 0.0)
                if len(request.ranks) == server.telling and request.response == "sent" and None not in stages:
                    return response, request
            time.sleep(0.05)
    raise AssertionError(server.log_text()[-3000:])
