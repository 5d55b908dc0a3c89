"""The serving log: what each kind of line means, what is unusable, and that nothing makes the parser fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchormatrix.engines.timing import ServeLog, closure_pct
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.measure.ramp import first_steady

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures" / "logs"
STAMP = "INFO 10-09 08:38:05 [diffusion_pipeline_profiler.py:29] [DiffusionPipelineProfiler]"


def sampling(steps: int, kind: str = "Video") -> str:
    head = "INFO 10-09 08:38:05 [serving_video.py:133]"
    return f"{head} {kind} sampling params: steps={steps} guidance=5.0 guidance_2=None seed=42\n"


def stage(name: str, seconds: float, rank: int = 0, tag: str = "SP") -> str:
    return f"(DiffusionWorker_{tag}{rank} pid={200 + rank}) {STAMP} {name} took {seconds:.6f}s\n"


def bar(done: int, total: int, clock: str, rank: int = 0) -> str:
    share = 100 * done // total
    return f"\r(DiffusionWorker_SP{rank} pid={200 + rank}) {share:3d}%|██| {done}/{total} [{clock}<00:09,  9.99s/it]"


def capture(name: str) -> ServeLog:
    path = CAPTURES / name
    if not path.exists():
        pytest.skip("../shared/captures is not here")
    return parse_serve_log(path.read_bytes().decode())


def test_step_time_is_the_fastest_rank_over_the_bars_total() -> None:
    log = parse_serve_log(
        sampling(4)
        + bar(1, 3, "00:02")
        + bar(3, 3, "00:06")
        + "\n"
        + stage("Wan22Pipeline.diffuse", 6.003, 0)
        + stage("Wan22Pipeline.diffuse", 6.000, 1)
    )
    (request,) = log.requests
    assert (request.steps, request.iterations, request.denominator) == (4, 3, "bar")
    assert request.step_s == pytest.approx(2.0)
    assert request.rank_spread_s == pytest.approx(0.003)
    assert request.bars == ((1, 2), (3, 6))


def test_without_a_bar_the_requested_count_divides() -> None:
    (request,) = parse_serve_log(sampling(4) + stage("Wan22Pipeline.diffuse", 8.0)).requests
    assert (request.iterations, request.denominator, request.step_s) == (4, "requested", 2.0)


def test_a_request_whose_bar_was_lost_counts_like_its_sisters() -> None:
    whole = sampling(4) + bar(3, 3, "00:06") + "\n" + stage("P.diffuse", 6.0)
    log = parse_serve_log(whole + sampling(4) + stage("P.diffuse", 6.3))
    assert [request.iterations for request in log.requests] == [3, 3]


def test_stages_logged_per_step_are_summed_within_a_rank_before_the_minimum() -> None:
    lines = [stage("P.sampler.diffuse", s, r) for r, times in enumerate([(1.0, 3.0), (1.5, 2.6)]) for s in times]
    (request,) = parse_serve_log(sampling(2) + "".join(lines)).requests
    assert request.diffuse_s == pytest.approx(4.0)
    assert request.ranks[1].stage_s == (1.5, 2.6)


def test_an_outer_stage_is_not_counted_twice_with_the_one_nested_in_it() -> None:
    text = sampling(2) + stage("P.diffuse", 4.0) + stage("P.sampler.diffuse", 3.9)
    assert parse_serve_log(text).requests[0].diffuse_s == 4.0


@pytest.mark.parametrize(
    "line",
    [
        stage("P.diffuse", 4.0, 1).replace(
            "profiler.py", "(DiffusionWorker_SP0 pid=200) INFO 10-09 08:38:05 profiler.py"
        ),
        stage("P.diffuse", 4.0, 1).replace("took", f"{STAMP} P.diffuse took"),
        stage("P.diffuse", 4.0, 1).replace("4.000000s", "4.0"),
        stage("P.diffuse", 4.0, 1)[30:],
        stage("P.diffuse", 0.0, 1),
    ],
    ids=["two workers", "stage twice", "cut at the end", "cut at the start", "zero"],
)
def test_a_spoiled_stage_line_is_counted_and_the_other_ranks_are_used(line: str) -> None:
    log = parse_serve_log(
        stage("x.load", 1.0, 1) + sampling(2) + stage("P.diffuse", 4.2, 0) + line + stage("P.forward", 5.0, 1)
    )
    (request,) = log.requests
    assert log.unusable_lines == 1
    assert request.diffuse_s == 4.2
    assert [timing.rank for timing in request.ranks] == [0]
    assert "rank 1 is not whole" in request.notes[0]


def test_a_rank_that_lost_one_of_its_steps_is_left_out_rather_than_summed_short() -> None:
    whole = "".join(stage("P.diffuse", 1.0, rank) for rank in (0, 1) for _ in range(4))
    short = whole.replace(stage("P.diffuse", 1.0, 1), "", 1)
    log = parse_serve_log(sampling(4) + whole + sampling(4) + short)
    assert [len(request.ranks) for request in log.requests] == [2, 1]
    assert log.requests[1].diffuse_s == 4.0


def test_a_lost_sampling_line_never_makes_one_request_of_two() -> None:
    one = "".join(stage("P.diffuse", 2.0, rank) for rank in (0, 1))
    log = parse_serve_log(sampling(4) + one + sampling(4) + one + one)
    assert [request.diffuse_s for request in log.requests] == [2.0, None]


def test_a_pipeline_that_logs_two_stages_of_every_request_is_summed() -> None:
    one = "".join(stage("P.diffuse", 2.0, rank) for rank in (0, 1) for _ in range(2))
    log = parse_serve_log(sampling(4) + one + sampling(10) + one)
    assert [request.diffuse_s for request in log.requests] == [4.0, 4.0]


def test_a_lost_response_keeps_its_timing_and_is_counted() -> None:
    lost = "WARNING 10-09 08:41:25 [api_server.py:512] client disconnected before response was sent\n"
    ok = 'INFO:     127.0.0.1:40922 - "POST /v1/videos/sync HTTP/1.1" 200 OK\n'
    log = parse_serve_log(
        sampling(4) + stage("P.diffuse", 8.0) + ok + sampling(4) + stage("P.diffuse", 8.0) + lost
        + sampling(4) + stage("P.diffuse", 8.0)
    )  # fmt: skip
    assert [request.response for request in log.requests] == ["sent", "lost", "lost"]
    assert log.lost_responses == 2
    assert log.requests[1].step_s == 2.0


def test_ansi_and_crlf_change_nothing() -> None:
    text = sampling(4) + stage("P.diffuse", 8.0)
    coloured = text.replace("INFO", "\x1b[32mINFO\x1b[0m").replace("\n", "\r\n")
    assert parse_serve_log(coloured).requests[0].step_s == 2.0


def test_group_sizes_are_taken_from_workers_and_never_from_echoed_arguments() -> None:
    echo = "INFO 10-09 08:38:05 [serve.py:1] args: Namespace(sp_size=8, tensor_parallel_size=8)\n"
    worker = "(DiffusionWorker pid=7) INFO 10-09 08:38:05 [parallel_state.py:610] Building SP subgroups "
    log = parse_serve_log(f"{echo}{worker}(sp_size=2, ulysses=2, ring=1)\n")
    assert log.groups == {"sp_size": (2,), "ulysses_degree": (2,), "ring_degree": (1,)}


def test_groups_that_nobody_prints_are_counted_from_the_workers_tags() -> None:
    lines = [
        stage("x.load", 1.0, pid, f"SP{sp}_TP{tp}_R") for pid, (sp, tp) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)])
    ]
    log = parse_serve_log("".join(lines))
    assert (log.groups["sp_size"], log.groups["tp_size"], len(log.ranks)) == ((2,), (2,), 4)


def test_a_worker_that_gets_its_tag_late_is_one_rank() -> None:
    early = "(DiffusionWorker pid=201) INFO 10-09 08:38:05 [x.py:1] loading\n"
    log = parse_serve_log(early + sampling(4) + stage("P.diffuse", 8.0, 1) + stage("P.diffuse", 8.0, 0))
    assert log.ranks == ("DiffusionWorker_SP0", "DiffusionWorker_SP1")


def test_plain_tags_are_told_apart_by_their_process() -> None:
    lines = "".join(f"(DiffusionWorker pid={pid}) {STAMP} P.diffuse took {pid / 100:.6f}s\n" for pid in (810, 800))
    log = parse_serve_log(sampling(4) + lines)
    assert len(log.ranks) == 2
    assert log.requests[0].step_s == 2.0


def test_a_model_without_stage_lines_says_so() -> None:
    log = parse_serve_log(sampling(4) + bar(4, 4, "00:08") + "\n")
    assert (log.stage_lines, log.requests[0].step_s, log.requests[0].bars) == (0, None, ((4, 8),))


def test_requests_under_the_profiler_are_marked() -> None:
    start = 'INFO:     127.0.0.1:1 - "POST /start_profile HTTP/1.1" 200 OK\n'
    log = parse_serve_log(sampling(4) + start + sampling(1) + start.replace("start", "stop") + sampling(4))
    assert [request.profiled for request in log.requests] == [False, True, False]


def test_capture_two_ranks() -> None:
    log = capture("vllm-omni-usp2.log")
    assert [request.step_s for request in log.requests] == pytest.approx(
        [2.6068717, 2.8952543, 3.0177408, 3.0178015, 3.0308939, 3.0190428, 3.0335372, 3.0209958, 3.0286384], abs=1e-7
    )
    assert (log.lines, log.unusable_lines, log.stage_lines, log.lost_responses) == (106, 1, 71, 1)
    assert log.groups == {"sp_size": (2,), "ulysses_degree": (2,), "ring_degree": (1,), "dp_size": (1,)}
    assert [len(request.ranks) for request in log.requests] == [2, 2, 2, 2, 2, 1, 2, 2, 2]
    assert log.requests[6].response == "lost"
    assert log.denominators == {"bar": 9}
    assert closure_pct(log.requests) == pytest.approx(0.129, abs=1e-3)
    steps = [request.steps for request in log.requests]
    assert first_steady([request.step_s or 0 for request in log.requests], 3, steps) == 2


def test_capture_stage_per_step() -> None:
    log = capture("vllm-omni-per-step-diffuse.log")
    assert [request.step_s for request in log.requests] == pytest.approx(
        [1.49952, 1.601624, 1.608494, 1.617288, 1.606126, 1.620281, 1.613924, 1.621396], abs=1e-9
    )
    assert [len(request.ranks[0].stage_s) for request in log.requests] == [6, 6, 4, 10, 4, 10, 4, 10]
    assert (len(log.ranks), log.unusable_lines, log.stage_lines) == (4, 0, 312)


def test_capture_of_a_failed_start_has_ranks_and_no_requests() -> None:
    log = capture("vllm-omni-hccl-init-failure.log")
    assert (log.requests, log.ranks) == ((), ("DiffusionWorker_SP3",))


BASE = (
    stage("x.load", 1.0, 0)
    + stage("x.load", 1.0, 1)
    + "".join(
        sampling(n) + bar(n, n, "00:08") + "\n" + stage("P.diffuse", 2.0 * n, 0) + stage("P.diffuse", 2.0 * n, 1)
        for n in (4, 10, 4)
    )
)


@given(st.text(max_size=400))
@settings(max_examples=60, deadline=None)
def test_no_text_makes_it_fail(text: str) -> None:
    parse_serve_log(text)


@given(st.integers(0, len(BASE)), st.integers(0, 80), st.text(alphabet="\r\n ()[]s0:./|%<DiffusionWorker", max_size=20))
@settings(max_examples=120, deadline=None)
def test_damage_never_makes_it_fail_nor_invents_a_faster_request(place: int, cut: int, put: str) -> None:
    log = parse_serve_log(BASE[:place] + put + BASE[place + cut :])
    assert len(log.requests) <= 3
    for request in log.requests:
        assert request.iterations > 0
        assert all(timing.diffuse_s > 0 for timing in request.ranks)


@given(st.lists(st.integers(0, BASE.count("\n") - 1), max_size=6, unique=True))
@settings(max_examples=80, deadline=None)
def test_lost_lines_never_change_the_step_time_of_what_is_left(lost: list[int]) -> None:
    lines = BASE.splitlines(keepends=True)
    log = parse_serve_log("".join(line for number, line in enumerate(lines) if number not in lost))
    timed = [request.step_s for request in log.requests if request.step_s is not None]
    # A request whose sampling line and one of whose neighbour's stage lines are gone cannot be told from its neighbour.
    assert len(lost) > 1 or all(step_s == pytest.approx(2.0) for step_s in timed)


@pytest.mark.parametrize(
    "spoiled", [("pid=", "pid=" + "9" * 5000), ("_SP", "_SP" + "9" * 5000), ("took 1", "took " + "1" * 400)]
)
def test_digits_without_end_are_no_number(spoiled: tuple[str, str]) -> None:
    text = (
        "INFO 10-09 08:38:05 [api.py:1] sampling params: steps=4, width=832\n"
        "(DiffusionWorker_SP0_TP0 pid=1) INFO 10-09 08:38:09 [profiler.py:1] "
        "[DiffusionPipelineProfiler] Pipe.diffuse took 1.0s\n"
    )
    assert [request.diffuse_s for request in parse_serve_log(text).requests] == [1.0]
    assert [request.diffuse_s for request in parse_serve_log(text.replace(*spoiled)).requests] in ([None], [1.0])


def test_a_job_is_accepted_before_it_logs_anything() -> None:
    post = '(APIServer pid=7) INFO:     127.0.0.1:5 - "POST /v1/videos HTTP/1.1" 200 OK\n'
    poll = '(APIServer pid=7) INFO:     127.0.0.1:5 - "GET /v1/videos/a HTTP/1.1" 200 OK\n'
    jobs = (f"{post}{sampling(n)}{stage('WanPipeline.diffuse', 2.0 * n)}{poll}" for n in (4, 10))
    found = parse_serve_log("".join(jobs)).requests
    assert [(request.response, request.step_s) for request in found] == [("sent", 2.0), ("sent", 2.0)]
