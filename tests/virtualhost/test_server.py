"""``vllm serve`` of the virtual host as a process: protocol, signals, ranks, faults. Servers are stopped by pid."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from free_ports import free_port

from virtualhost.host.live import LiveHost
from virtualhost.host.scenario import Scenario
from virtualhost.host.scenario_files import load_scenario
from virtualhost.host.split import Split
from virtualhost.host.state import HostState
from virtualhost.host.strict import build
from virtualhost.server.arguments import LaunchError, parse

ROOT = Path(__file__).resolve().parents[2]
VLLM = ROOT / "virtualhost" / "bin" / "vllm"
HEALTHY = ROOT / "virtualhost" / "scenarios" / "healthy.yaml"


class Running:
    """A server under test and its client."""

    def __init__(
        self, tmp_path: Path, *, cards="0,1", usp=2, extra=(), changes="", wait=True, port=0, model="Wan"
    ) -> None:
        self.port = port or free_port()
        self.state = HostState(tmp_path / "state")
        self.log_path = tmp_path / f"server-{self.port}.log"
        scenario = tmp_path / "scenario.yaml"
        scenario.write_text(f"extends: {HEALTHY}\nname: test\n{changes}")
        env = {
            "PATH": "/usr/bin:/bin",
            "VIRTUALHOST_SCENARIO": str(scenario),
            "VIRTUALHOST_STATE": str(tmp_path / "state"),
            "ASCEND_RT_VISIBLE_DEVICES": cards,
        }
        command = [sys.executable, str(VLLM), "serve", model, "--omni", "--port", str(self.port), "--usp", str(usp)]
        command += ["--num-gpus", str(usp), "--enable-diffusion-pipeline-profiler", *extra]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        if wait:
            self.until(lambda: self.health() == 200)

    def until(self, condition, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.log
            time.sleep(0.01)

    @property
    def log(self) -> str:
        """The log without colours."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.log_path.read_text(encoding="utf-8"))

    def health(self) -> int:
        try:
            return self.get("/health")[0]
        except OSError:
            return 0

    def get(self, path: str, data: bytes | None = None, kind: str = "") -> tuple[int, bytes]:
        headers = {"Content-Type": kind} if kind else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def video(self, steps: int, path: str = "/v1/videos/sync") -> tuple[int, bytes]:
        return self.get(path, self.form(steps), "multipart/form-data; boundary=b")

    def headers(self, path: str, form: bytes) -> dict[str, str]:
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=form, headers=kind)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return dict(answer.headers)

    @staticmethod
    def form(steps: int) -> bytes:
        fields = {"prompt": "a lighthouse", "num_inference_steps": steps, "seed": 42}
        parts = [f'--b\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()]
        return ("".join(parts) + "--b--\r\n").encode()

    def ranks(self) -> list[int]:
        return [rank.pid for job in self.state.jobs() for rank in job.ranks]

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


@pytest.fixture
def serve(tmp_path):
    """Start servers; whatever still runs in the end is killed, by pid."""
    servers: list[Running] = []

    def start(**options) -> Running:
        servers.append(Running(tmp_path, **options))
        return servers[-1]

    yield start
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            server.process.kill()
        server.process.wait(timeout=20)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_session_from_start_to_a_clean_stop(serve):
    server = serve(cards="2,3")
    status, body = server.video(4)
    assert (status, body[4:12]) == (200, b"ftypmp42")
    assert server.video(4)[1] == body
    ranks = server.ranks()
    assert len(ranks) == 2
    scenario = load_scenario(HEALTHY)
    assert [process.pid for process in LiveHost(scenario, server.state).processes(2)] == ranks[:1]
    assert all(f"(DiffusionWorker_SP{rank} pid={pid})" in server.log for rank, pid in enumerate(ranks))
    assert server.stop() == 0
    assert server.log.endswith("Worker 1: Shutdown complete.\n")
    assert server.log.count('POST /v1/videos/sync HTTP/1.1" 200 OK') == 2
    assert all(gone(pid) for pid in ranks)
    assert server.state.jobs() == ()
    assert server.state.snapshot().residue == []
    assert server.state.snapshot().form_finished == {"2,3/tp1-usp2": 1}


def test_images_and_asynchronous_videos(serve):
    server = serve()
    body = json.dumps({"prompt": "x", "num_inference_steps": 4, "size": "1024x768"}).encode()
    status, answer = server.get("/v1/images/generations", body, "application/json")
    assert status == 200
    assert json.loads(answer)["data"][0]["b64_json"]
    job = json.loads(server.video(4, "/v1/videos")[1])
    assert job["status"] in ("queued", "in_progress", "completed")
    server.until(lambda: json.loads(server.get(f"/v1/videos/{job['id']}")[1])["status"] == "completed")
    assert server.get(f"/v1/videos/{job['id']}/content") == server.video(4)
    assert server.get("/v1/videos/video_unknown")[0] == 404
    assert server.log.count("sampling params") == 2  # of the videos alone


def test_a_wrong_request_is_refused_with_the_field(serve):
    server = serve()
    for body, words in (
        (b"{", "not JSON"),
        (b"{}", "prompt"),
        (b'{"prompt": "x", "num_inference_steps": 0}', "num_inference_steps"),
    ):
        status, answer = server.get("/v1/images/generations", body, "application/json")
        assert status == 400
        assert words in json.loads(answer)["error"]["message"]


def test_nothing_listens_until_the_model_is_loaded(serve):
    server = serve(changes="serving: {startup_s: 1000000}\n", wait=False)
    server.until(lambda: "Building SP subgroups" in server.log)
    assert server.health() == 0
    assert server.stop(signal.SIGTERM) == 0


def test_an_answer_tells_what_the_first_rank_spent(serve):
    server = serve()
    headers = server.headers("/v1/videos/sync", server.form(4))
    told = json.loads(headers["X-Stage-Durations"])
    logged = re.findall(r"_SP0 pid=\d+\).* (Wan22Pipeline\.(?:diffuse|forward)) took ([\d.]+)s", server.log)[-2:]
    assert [told[name] for name, _ in logged] == pytest.approx([float(seconds) for _, seconds in logged], abs=2e-6)
    assert told["stage_0_gen_ms"] == pytest.approx(1000 * float(headers["X-Inference-Time-S"]), rel=0.01)
    assert headers["X-Model"] == "Wan"
    assert headers["X-Request-Id"].startswith("video_sync-")
    assert float(headers["X-Peak-Memory-MB"]) > 1000
    job = json.loads(server.video(4, "/v1/videos")[1])
    assert job["id"].startswith("video_gen_")
    server.until(lambda: json.loads(server.get(f"/v1/videos/{job['id']}")[1])["status"] == "completed")
    done = json.loads(server.get(f"/v1/videos/{job['id']}")[1])
    assert set(done["stage_durations"]) == set(told)
    assert done["inference_time_s"] > done["stage_durations"]["Wan22Pipeline.diffuse"] > 1
    assert 'INFO:     127.0.0.1:40922 - "POST /v1/videos HTTP/1.1" 200 OK' in server.log
    assert f'"GET /v1/videos/{job["id"]} HTTP/1.1" 200 OK' in server.log


def test_an_image_s_metrics_are_those_of_its_pipeline(serve):
    server = serve(model="Tongyi-MAI/Z-Image-Turbo")
    body = json.dumps({"prompt": "x", "num_inference_steps": 4, "size": "1024x768"}).encode()
    answer = json.loads(server.get("/v1/images/generations", body, "application/json")[1])
    assert set(answer["metrics"]["stage_durations"]) == {
        "ZImagePipeline.text_encoder.forward",
        "ZImagePipeline.vae.decode",
        "ZImagePipeline.forward",
        "queue_wait_ms",
        "stage_0_gen_ms",
    }
    assert answer["metrics"]["peak_memory_mb"] > 1000
    assert (answer["output_format"], answer["size"]) == ("png", "1024x768")


def test_another_model_is_a_mismatch(serve):
    server = serve(extra=("--served-model-name", "mine"))
    body = json.dumps({"prompt": "x", "model": "Wan"}).encode()
    status, answer = server.get("/v1/images/generations", body, "application/json")
    assert status == 400
    assert "Model mismatch: request specifies 'Wan' but server is running 'mine'." in answer.decode()


def test_one_card_needs_no_process_of_its_own_unless_asked(serve):
    alone, apart = serve(cards="0", usp=1), serve(cards="1", usp=1, extra=("--distributed-executor-backend", "mp"))
    assert alone.process.pid in alone.ranks()
    assert apart.process.pid not in apart.ranks()
    assert len(apart.ranks()) == 2
    assert alone.video(4)[0] == apart.video(4)[0] == 200
    assert f"(DiffusionWorker pid={alone.process.pid})" in alone.log
    assert f"(APIServer pid={apart.process.pid})" in apart.log.splitlines()[-1]
    assert alone.stop() == apart.stop() == 0


def test_a_capture_is_written_per_rank(serve, tmp_path):
    directory = tmp_path / "profile"
    server = serve(extra=("--profiler-config", json.dumps({"profiler": "torch", "torch_profiler_dir": str(directory)})))
    assert server.get("/start_profile", b"")[0] == 200
    server.video(1)
    assert server.get("/stop_profile", b"")[0] == 200
    tables = sorted(directory.rglob("kernel_details.csv"))
    assert len(tables) == 2
    assert len(tables[0].read_text().splitlines()) > 100
    assert len(list(directory.rglob("step_trace_time.csv"))) == 2


def test_without_a_profiler_its_endpoints_do_not_exist(serve):
    assert serve().get("/start_profile", b"")[0] == 404


def test_a_killed_server_takes_its_ranks_along_and_leaves_residue(serve):
    server = serve()
    ranks = server.ranks()
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    server.until(lambda: all(gone(pid) for pid in ranks))
    assert server.state.jobs() == ()
    assert server.state.snapshot().residue == [0, 1]


def test_the_server_notices_a_killed_rank(serve):
    server = serve()
    os.kill(server.ranks()[1], signal.SIGKILL)
    assert server.process.wait(timeout=20) == 1
    assert "Diffusion worker(s) died unexpectedly: ['DiffusionWorker-1(exitcode=-9, SIGKILL)']" in server.log
    assert server.state.snapshot().residue == [0, 1]


def test_a_signal_to_the_whole_tree_is_a_clean_stop(serve):
    server = serve()
    for pid in [*server.ranks(), server.process.pid]:
        os.kill(pid, signal.SIGTERM)
    assert server.process.wait(timeout=20) == 0
    assert server.state.snapshot().residue == []


def test_a_server_that_ignores_sigint_still_stops_at_sigterm(serve):
    server = serve(changes="faults: [{kind: ignore_sigint}]\n")
    server.process.send_signal(signal.SIGINT)
    assert server.video(4)[0] == 200
    assert server.stop(signal.SIGTERM) == 0


def test_a_hanging_request_ends_with_the_server(serve):
    server = serve(changes="faults: [{kind: hang, request: 1, step: 2}]\n")
    client = subprocess.Popen(
        [sys.executable, "-c", f"import urllib.request as u; u.urlopen(u.Request('http://127.0.0.1:{server.port}"
         "/v1/images/generations', data=b'{\"prompt\": \"x\"}'), timeout=20)"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    server.until(lambda: "| 1/50 [" in server.log)
    assert server.process.poll() is None
    assert server.stop() == 0
    assert client.wait(timeout=20) != 0
    assert server.state.snapshot().form_finished == {}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{kind: crash, where: start}", "RuntimeError"),
        ("{kind: oom, where: load}", "out of memory"),
        ("{kind: comm_init}", "HCCL function error"),
        ("{kind: port_in_use}", "Address already in use"),
        ("{kind: rank_killed, where: load}", "Exit code: -9"),
    ],
)
def test_a_start_that_fails_exits_with_the_reason_in_the_log(serve, fault, words):
    server = serve(changes=f"faults: [{fault}]\n", wait=False)
    assert server.process.wait(timeout=20) == 1
    assert words in server.log
    assert server.state.jobs() == ()
    assert server.state.snapshot().residue == []


def test_a_crash_in_a_request_leaves_the_client_without_an_answer(serve):
    server = serve(changes="faults: [{kind: crash, request: 2}]\n")
    assert server.video(4)[0] == 200
    with pytest.raises(OSError, match="closed connection"):
        server.video(4)
    assert server.process.wait(timeout=20) == 1


def test_a_lost_response_does_not_hurt_the_server(serve):
    server = serve(changes="faults: [{kind: lost_response, request: 1}]\n")
    with pytest.raises(OSError, match="closed connection"):
        server.video(4)
    assert server.video(4)[0] == 200


def test_a_port_that_is_taken(serve):
    first = serve()
    second = serve(cards="2,3", port=first.port, wait=False)
    assert second.process.wait(timeout=20) == 1
    assert "OSError: [Errno 98] Address already in use" in second.log
    assert first.health() == 200


def test_an_unknown_flag_is_an_argparse_error(serve):
    server = serve(extra=("--flash",), wait=False)
    assert server.process.wait(timeout=20) == 2
    assert server.log.endswith("vllm serve: error: unrecognized arguments: --flash\n")


def test_version(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "VIRTUALHOST_STATE": str(tmp_path), "VIRTUALHOST_SCENARIO": str(HEALTHY)}
    done = subprocess.run(
        [sys.executable, str(VLLM), "--version"], env=env, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "0.30.0\n"


def launch(*flags: str, visible: str = "0,1,2,3"):
    environment = {"ASCEND_RT_VISIBLE_DEVICES": visible}
    return parse(["Wan", "--omni", *flags], build(Scenario, {"name": "x"}), environment)


def test_every_degree_and_feature_has_its_flag():
    flags = ["--num-gpus", "8", "--tensor-parallel-size", "2", "--ulysses-degree", "2", "--ring-degree", "2"]
    flags += ["--enable-layerwise-offload", "--mask-chunks", "4", "--vae-patch-parallel-size", "8"]
    asked = launch(*flags, visible="0,1,2,3,4,5,6,7")
    assert asked.split == Split(tp=2, usp=2, ring=2, offload="layerwise-offload", mask_chunks=4)
    more = launch("--allgather-degree", "2", "--cfg-parallel-size", "2", "--enable-distributed-layerwise-offload")
    assert more.split == Split(ag=2, cfg=2, offload="distributed-layerwise-offload")
    assert launch("--pipeline-parallel-size", "2", "--enable-cpu-offload", visible="4,5").cards == (4, 5)


@pytest.mark.parametrize(
    ("flags", "visible", "words"),
    [
        (["--usp", "4", "--num-gpus", "2"], "0,1,2,3", "must be divisible by non-DP parallel size"),
        (["--usp", "2", "--num-gpus", "4"], "0,1,2,3", "no timeline for data-parallel replicas"),
        (["--data-parallel-size", "2"], "0", "not supported under --omni: --data-parallel-size"),
        (["--enable-expert-parallel"], "0", "not supported under --omni: --enable-expert-parallel"),
        (["--api-server-count", "2"], "0", "not supported for diffusion models"),
        (["--cache-backend", "magic"], "0", "Unsupported cache backend: magic"),
        (["--step-execution"], "0", "Wan22Pipeline does not support that contract"),
        (["--usp", "2", "--distributed-executor-backend", "uni"], "0,1", "supports a single GPU only"),
        (["--profiler-config", '{"profiler": "torch"}'], "0", "must be set when profiler is 'torch'"),
        (["--profiler-config", '{"torch_profiler_dir": "/x"}'], "0", "only applicable when profiler is set"),
        (["--profiler-config", '{"profiler": "torch", "dir": "/x"}'], "0", "unexpected keyword arguments dir"),
        (["--usp", "4"], "0,1", "shows 2"),
        (["--usp", "2"], "0,9", "does not exist"),
        (["--usp", "2"], "0,0", "given twice"),
        (["--usp", "2"], "a,b", "not a list"),
        (["--enable-cpu-offload", "--enable-layerwise-offload"], "0", "exclude each other"),
        (["--profiler-config", "yes"], "0", "a JSON object is needed"),
    ],
)
def test_combinations_that_cannot_work_are_refused(flags, visible, words):
    with pytest.raises(LaunchError, match=words):
        launch(*flags, visible=visible)


def test_visible_devices_are_logic_ids():
    scenario = load_scenario(ROOT / "virtualhost" / "scenarios" / "container.yaml")
    assert parse(["Wan", "--omni", "--usp", "2"], scenario, {"ASCEND_RT_VISIBLE_DEVICES": "2,3"}).cards == (6, 7)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--ring", "2"], "SANA-Video does not support ring sequence parallel"),
        (["--usp", "2", "--text-encoder-tp-size", "2"], "SANA-Video does not support text encoder tensor parallel"),
    ],
)
def test_a_pipeline_refuses_what_it_takes_no_part_in(flags, words):
    with pytest.raises(LaunchError, match=words):
        parse(["SANA-Video_2B", "--omni", *flags], build(Scenario, {"name": "x"}), {})


def test_a_model_without_a_pipeline_is_refused_with_those_there_are():
    with pytest.raises(LaunchError, match="no pipeline of the virtual host serves Llama-3: it has Wan22I2VPipeline, "):
        parse(["Llama-3", "--omni"], build(Scenario, {"name": "x"}), {})


def test_flags_that_change_nothing_here_are_taken():
    asked = launch("--text-encoder-tp-size", "3", "--vae-fast-path", "off", "--cache-backend", "cache_dit", visible="0")
    assert asked.options.cache == "cache_dit"
    assert asked.options.inline
