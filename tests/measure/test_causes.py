"""From what a server logged to its cause: every entry of the catalogue with a small log, and logs that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.measure.causes import catalogue, failure_of, first_errors, known_failure
from virtualhost.host.scenario import Scenario
from virtualhost.host.strict import build
from virtualhost.server.exchange import parse_split
from virtualhost.server.serving import ServingSession

LOGS = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).with_name("causes").glob("*.log")}
CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
REQUEST = "INFO 11-03 12:00:01 [serving_video.py:477] Video sampling params: steps=4 guidance=5.0 seed=42\n"
STAGE = (
    "(DiffusionWorker_SP0 pid=7) INFO 11-03 12:00:04 [diffusion_pipeline_profiler.py:32] [DiffusionPipelineProfiler] "
    "WanPipeline.diffuse took 2.500000s\n"
)


def test_every_entry_has_a_log_and_every_log_an_entry() -> None:
    assert set(LOGS) == set(catalogue())
    assert len(catalogue()) >= 25


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_log_gives_its_own_cause(name: str) -> None:
    found = known_failure(LOGS[name])
    assert found is not None
    assert (found.id, found.line in " ".join(LOGS[name].split())) == (name, True)


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_failure_is_found_after_requests_that_went_well(name: str) -> None:
    found = known_failure((REQUEST + STAGE) * 3 + LOGS[name])
    assert found is not None and found.id == name


def test_entries_say_what_to_check_and_where_they_are_from() -> None:
    for entry in catalogue().values():
        assert entry.source.startswith("https://"), entry.id
        assert not any(text.endswith(".") for text in (entry.cause, entry.check, entry.cure)), entry.id


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-03 12:00:00 [x.py:1] expandable segments avoid out of memory",
        "INFO 11-03 12:00:00 [data.py:1178] Port 29500 was unavailable, using port 29501 instead",
        "gpu-a:771:771 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 2 - Init COMPLETE",
        "(DiffusionWorker_SP0 pid=7) WARNING 11-03 12:00:00 [profiler.py:69] Method path tokenizer.forward not found",
        '(APIServer pid=9) INFO:     127.0.0.1:34204 - "POST /v1/videos/sync HTTP/1.1" 200 OK',
        "[12-02 16:42:43] Cleaned up worker process(es)",
        "(DiffusionWorker_SP0 pid=7)  75%|███████▌  | 3/4 [00:36<00:12, 12.1s/it]",
    ],
)
def test_healthy_lines_have_no_cause(line: str) -> None:
    assert known_failure(f"{line}\n") is None


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures of real tools are not beside this clone")
def test_real_logs_have_their_cause_or_none() -> None:
    causes = {path.name: known_failure(path.read_text(errors="replace")) for path in sorted(CAPTURES.glob("*/*.log"))}
    assert {name: found.id for name, found in causes.items() if found} == {
        "vllm-omni-hccl-init-failure.log": "hccl_root_unreachable",
        "zimage-ring2-refused.log": "form_not_supported",
    }


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"kind": "port_in_use"}, "port_in_use"),
        ({"kind": "comm_init"}, "hccl_root_unreachable"),
        ({"kind": "oom", "where": "load"}, "out_of_memory_card"),
        ({"kind": "crash", "where": "load"}, "core_exception"),
        ({"kind": "crash", "where": "load", "text": "KeyError: 'blocks.7'"}, "unknown"),
    ],
)
def test_the_virtual_hosts_faults_have_their_causes(fault: dict[str, str], cause: str) -> None:
    scenario = build(Scenario, {"name": "test", "faults": [fault]})
    text = ServingSession(scenario, parse_split("tp1-usp4"), (0, 1, 2, 3)).startup().text
    assert failure_of(text, 1).id == cause


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Model path not found: /models/Qwen-Image", "model_missing"),  # utils/set_config.py:124
        ("q_heads and kv_heads must be divisible by world_size=7.", "heads_ulysses"),  # ops/attn/ulysses_attn.py:385
        (
            "Parallel sizes must match the distributed world size: tensor_p_size (1) * cfg_p_size (1) * seq_p_size (4) "
            "!= world_size (2).",
            "world_size",  # utils/set_config.py:420
        ),
    ],
)
def test_what_lightx2v_says_when_it_cannot_start_has_its_cause(said: str, cause: str) -> None:
    where = "lightx2v.server.services.inference.worker:init:65"
    line = f"2026-12-03 08:08:53.802 | ERROR    | {where} - Rank 0 initialization failed: {said}\n"
    assert failure_of(line, 1).id == cause


def test_the_virtual_hosts_healthy_log_has_no_cause() -> None:
    serving = ServingSession(build(Scenario, {"name": "test"}), parse_split("tp2-usp2"), (0, 1, 2, 3))
    text = serving.startup().text + "".join(serving.request(4).text for _ in range(3)) + serving.rank_died(1, 9).text
    assert known_failure(text.rsplit("ERROR", 2)[0]) is None
    assert failure_of(text).id == "killed"


def test_a_reason_goes_before_the_place_and_the_echo() -> None:
    echo = "(DiffusionWorker_SP0 pid=7) RuntimeError: Connection reset by peer\n"
    place = "(DiffusionWorker_SP1 pid=8) RuntimeError: HCCL function error: hcclCommInitRootInfoConfig\n"
    reason = "(DiffusionWorker_SP2 pid=9) torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB\n"
    assert [failure_of(text).id for text in (echo, echo + place, echo + place + reason)] == [
        "peer_lost",
        "communicator_init",
        "out_of_memory_card",
    ]


def test_the_rank_that_failed_first_counts() -> None:
    text = "[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n[rank0]: Fatal Python error: Segmentation fault\n"
    assert failure_of(text).line == "[rank1]: torch.OutOfMemoryError: CUDA out of memory."


def test_only_the_last_two_requests_are_looked_at() -> None:
    old = REQUEST + "(DiffusionWorker_SP0 pid=7) ValueError: Broken pipe\n"
    assert known_failure(old + REQUEST + STAGE + REQUEST + STAGE) is None


def test_an_unknown_failure_says_so_with_the_first_error_of_each_rank() -> None:
    text = (
        "(DiffusionWorker_SP1 pid=8) ERROR 11-03 12:00:00 [w.py:1] Traceback (most recent call last):\n"
        "(DiffusionWorker_SP1 pid=8) ERROR 11-03 12:00:00 [w.py:1] KeyError: 'blocks.7'\n"
        "(DiffusionWorker_SP0 pid=7) ERROR 11-03 12:00:01 [w.py:9] rank 1 did not answer\n"
        "(DiffusionWorker_SP1 pid=8) ERROR 11-03 12:00:02 [w.py:1] RuntimeError: the worker ends\n"
        "ERROR 11-03 12:00:03 [launcher.py:96] Engine core failed\n"
    )
    failure = failure_of(text)
    assert (failure.id, failure.check) == ("unknown", "")
    assert failure.words.startswith("cause unknown «(DiffusionWorker_SP1 pid=8) ERROR")
    assert failure.words.endswith("KeyError: 'blocks.7'»")
    assert [line.rsplit("] ", 1)[1] for line in first_errors(text)] == [
        "KeyError: 'blocks.7'",
        "rank 1 did not answer",
        "Engine core failed",
    ]


def test_the_main_processs_exit_code_is_the_last_word() -> None:
    assert failure_of("INFO ready\n", -9).id == "killed"
    assert failure_of("INFO ready\n", -11).id == "segmentation_fault"
    assert failure_of("torch.OutOfMemoryError: CUDA out of memory.\n", -9).id == "out_of_memory_card"
    assert failure_of("INFO ready\n", 1).words == "cause unknown"
