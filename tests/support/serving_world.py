"""A small world for measuring tests: a host, its cards and a server in one thread, with faults by request number."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from free_ports import free_port
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.vllm_omni.launch import VllmOmni
from anchormatrix.errors import HostError, LeaseError
from anchormatrix.hosts.base import Completed, StopRecord, SupervisedCommand
from anchormatrix.measure.rig import Rig
from anchormatrix.records.contract import Contract
from anchormatrix.records.host import Card, CardProcess, HostState, Topology
from anchormatrix.records.settings.policies import WarmupSettings
from anchormatrix.records.settings.whole import Settings

LINKS = tuple(tuple("X" if a == b else "UB" for b in range(4)) for a in range(4))
_STAGE = "INFO 10-09 08:38:05 [profiler.py:29] [DiffusionPipelineProfiler] P"


def small_settings(**parts: Any) -> Settings:
    """The default configuration with short time-outs; ``parts`` replace keys of its sections."""
    settings = load_settings(DEFAULT_FILE)
    changes: dict[str, dict[str, Any]] = {
        "engine": {"ready_timeout_s": 3.0, "request_timeout_s": 2.0, "stop_grace_s": 1.0},
        "health": {"busy_wait_s": 0.2, "on_busy": "fail"},
        "capture": {"enabled": False},
        "matrix": {"warmups": WarmupSettings(min=2, max=6, steady_pct=3)},
    }
    for section, values in parts.items():
        changes[section] = {**changes.get(section, {}), **values}
    return replace(settings, **{name: replace(getattr(settings, name), **keys) for name, keys in changes.items()})


def whole_host() -> Contract:
    """The contract of all four cards."""
    return Contract(
        host="fake", cards=(0, 1, 2, 3), links=LINKS, one_domain=True, device_model="N", driver="1", toolkit="2",
        framework="vllm-omni", framework_version="3", workload={}, tiers={"few": 4, "anchor": 10},
    )  # fmt: skip


@dataclass
class World:
    """What happens. ``step_s(n)`` is the step time of the n-th request of a server, from 1.

    ``faults`` maps a request number to ``error``, ``lost``, ``die`` or ``spoil``; ``start`` is ``ready``, ``oom`` or
    ``exit``. ``distance`` is what the server's check of its own result finds. ``tenant_after`` and ``alarm_after`` name
    a number of finished servers after which somebody is on card 1. ``picture`` is what every request is answered with;
    without one it is no picture, and another for each number of steps.
    """

    folder: Path
    ramp: Sequence[float] = (0.87, 0.9)
    base_s: float = 3.0
    ranks: int = 4
    sp_size: int | None = None
    stage_lines: bool = True
    waited_for: bool = True
    distance: str = ""
    faults: Mapping[int, str] = field(default_factory=dict)
    faulty_servers: int = 99
    start: str = "ready"
    tenant_after: range = range(0)
    alarm_after: range = range(0)
    stop_how: str = "sigint"
    profile: str = "Name\nMatMul\n"
    picture: bytes = b""
    servers: int = 0
    finished: int = 0
    started: list[tuple[str, ...]] = field(default_factory=list)

    def step_s(self, number: int) -> float:
        """Seconds per step of a request."""
        return self.base_s * (self.ramp[number - 1] if number <= len(self.ramp) else 1.0)

    def state(self) -> HostState:
        """What the vendor's tool says now."""
        tenant = (CardProcess(4242, "intruder", 9000),) if self.finished in self.tenant_after else ()
        alarm = "Alarm" if self.finished in self.alarm_after else "OK"
        cards = [
            Card(
                id=n,
                npu=n,
                chip=0,
                name="N",
                health=alarm if n == 1 else "OK",
                hbm_used_mb=3000,
                hbm_total_mb=65536,
                processes=tenant if n == 1 else (),
            )
            for n in range(4)
        ]
        return HostState(Topology((0, 1, 2, 3), LINKS), tuple(cards), (("driver", "1"),))


def rig_of(world: World, settings: Settings | None = None) -> Rig:
    """A rig over a world."""
    chosen = settings or small_settings()
    return Rig(FakeHost(world), FakeDevice(world), VllmOmni(chosen), chosen, lambda _: None)


class FakeDevice:
    """Reads the world."""

    kind = "ascend"

    def __init__(self, world: World) -> None:
        self.world = world

    def read(self, host: object, *, timeout_s: float) -> HostState:
        return self.world.state()

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        return {"ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, cards))}


class FakeLease:
    """A lease on nothing; ``killed`` are the host's cards on which somebody's job had to be killed."""

    def __init__(self, cards: Sequence[int], killed: set[int]) -> None:
        self.cards = tuple(cards)
        self._killed = killed
        self.suspect = tuple(card for card in cards if card in killed)

    def trust(self) -> None:
        self._killed.difference_update(self.cards)

    def release(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> FakeLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class FakeHost:
    """One folder of this machine, and servers in threads."""

    alias = "fake"

    def __init__(self, world: World) -> None:
        self.world = world
        self.held = False
        self.killed: set[int] = set()

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float, check: bool = True
    ) -> Completed:
        return Completed(tuple(argv), 0, "0.5 0.4 0.3 1/100 1", "", 0.0)

    def lease(self, cards: Sequence[int], *, holder: Mapping[str, str], wait_s: float) -> FakeLease:
        if self.held:
            raise LeaseError("held by another")
        return FakeLease(cards, self.killed)

    def start(self, command: SupervisedCommand, *, lease: object = None) -> FakeProcess:
        argv = tuple(command.argv)
        self.world.started.append(argv)
        self.world.servers += 1
        return FakeProcess(self.world, int(argv[argv.index("--port") + 1]), Path(command.log_path))

    def own_pids(self) -> frozenset[int]:
        return frozenset({1})

    def read_from(self, path: str, offset: int) -> bytes:
        try:
            return Path(path).read_bytes()[offset:]
        except OSError as error:
            raise HostError(str(error)) from None

    def fetch(self, path: str, to: Path) -> None:
        if not Path(path).exists():
            raise HostError("no such folder", where=path)
        shutil.copytree(path, to)

    def free_port(self) -> int:
        return free_port()

    def local_port(self, port: int) -> int:
        return port

    def scratch(self, name: str) -> str:
        folder = self.world.folder / f"scratch-{name}-{self.world.servers}"
        folder.mkdir(parents=True)
        return str(folder)

    def holders(self) -> list[dict[str, object]]:
        return []

    def close(self) -> None:
        """Nothing is left."""


class FakeProcess:
    """A server: writes the log, answers on its port."""

    pid = 77

    def __init__(self, world: World, port: int, log: Path) -> None:
        self.world, self.log, self.code = world, log, None if world.start == "ready" else 1
        self.requests, self.capturing = 0, False
        self.faults = dict(world.faults) if world.servers <= world.faulty_servers else {}
        self._write_start()
        self.server: ThreadingHTTPServer | None = None
        if world.start == "ready":
            self.server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
            threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def poll(self) -> int | None:
        return self.code

    def tree(self) -> tuple[int, ...]:
        return (self.pid,)

    def stop(self, *, grace_s: float) -> StopRecord:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
        self.world.finished += 1
        return StopRecord(self.world.stop_how if self.code is None else "exited", 0.1, self.code or 0, 0)

    def write(self, text: str) -> None:
        """Append to the log."""
        with self.log.open("a") as stream:
            stream.write(text)

    def generate(self, steps: int) -> str:
        """Log one request; returns its fault, if any."""
        self.requests += 1
        fault = self.faults.get(self.requests, "")
        self.write(f"INFO 10-09 08:38:05 [s.py:1] Video sampling params: steps={steps} guidance=5.0 seed=42\n")
        if fault == "die":
            self.write("(DiffusionWorker_SP0 pid=200) RuntimeError: device lost\n")
            self.code = 1
        if fault in ("die", "error"):
            return fault
        took = self.world.step_s(self.requests) * steps
        for rank in range(self.world.ranks if self.world.stage_lines else 0):
            prefix = f"(DiffusionWorker_SP{rank} pid={200 + rank}) "
            for name, seconds in (
                ("encode_prompt", 0.4),
                ("diffuse", took if self.world.waited_for else took / 1000),
                ("vae.decode", 3),
                ("forward", took + 3.5),
            ):
                spoil = fault == "spoil" and name == "diffuse"
                self.write(f"{prefix}{_STAGE}.{name} took {seconds:.6f}{'' if spoil else 's'}\n")
        return fault

    def _write_start(self) -> None:
        self.log.write_text("INFO 10-09 08:38:05 [s.py:1] starting\n")
        if self.world.start == "oom":
            self.write("(DiffusionWorker_SP1 pid=201) torch.OutOfMemoryError: NPU out of memory.\n")
        for rank in range(self.world.ranks):
            size = self.world.sp_size or self.world.ranks
            groups = f"sp_size={size} ulysses_degree={size} ring_degree=1"
            head = f"(DiffusionWorker_SP{rank} pid={200 + rank}) INFO 10-09 08:38:05 [p.py:1]"
            self.write(f"{head} groups: {groups}\n")
            if self.world.distance:
                check = f"one step against one rank: relative distance {self.world.distance}, limit 1.00e-05"
                self.write(f"{head} Split check: {check}\n")


def _handler(process: FakeProcess) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            if not self.path.startswith("/v1/"):
                process.capturing = self.path == "/start_profile"
                self._reply(200, b"")
                return
            steps = int(body.split('name="num_inference_steps"')[1].split()[0])
            fault = process.generate(steps)
            if process.capturing:
                folder = process.log.parent / "capture" / "rank0"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "kernel_details.csv").write_text(process.world.profile)
            if fault in ("die", "lost"):
                self.close_connection = True
                return
            picture = process.world.picture
            self._reply(500 if fault == "error" else 200, picture or f"video of {steps}".encode())

        def _reply(self, status: int, data: bytes) -> None:
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "image/png")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    return Handler
