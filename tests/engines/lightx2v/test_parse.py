"""LightX2V's log becomes timed requests; what is not the request that was asked for is not used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightx2v_logs import ALONE, ULYSSES_2, line, span, start, steps, task

from anchormatrix.engines.client import Response
from anchormatrix.engines.lightx2v.parse import parse_log
from anchormatrix.measure.proof import prove
from anchormatrix.records.requests import RequestStatus

GROUPS = {"world": 2, "sp_size": 2, "ulysses_degree": 2, "ring_degree": 1, "tp_size": 1, "cfg_size": 1}


def answered(steps: int) -> Response:
    return Response(RequestStatus.OK, 9.0, steps=steps)


def test_every_rank_times_every_step_and_the_fastest_counts() -> None:
    log = parse_log(start() + task([[1.0, 2.0, 3.0], [1.5, 2.0, 3.0]]), [answered(3)])
    (request,) = log.requests
    assert (request.steps, request.iterations, request.denominator, request.basis) == (3, 3, "bar", "each step")
    assert request.diffuse_s == pytest.approx(6.003)
    assert request.step_s == pytest.approx(2.001)
    assert request.steps_s == pytest.approx((1.001, 2.001, 3.001))
    assert request.rank_spread_s == pytest.approx(0.5)
    assert (request.encode_s, request.decode_s, request.forward_s) == (0.5, 0.25, None)
    assert (request.response, request.refused, log.spoiled) == ("sent", "", {})


def test_a_runner_that_times_a_step_as_one_is_read_by_that_line() -> None:
    inner = "".join(steps(0, [1.0, 2.0]))
    whole = span(0, "Run Dit every step", 1.2) + span(0, "Run Dit every step", 2.2)
    begin, end = task([[1.0, 2.0]]).split("".join(steps(0, [1.0, 2.0])))
    (request,) = parse_log(start(1) + begin + inner + whole + end).requests
    assert request.diffuse_s == pytest.approx(3.4)
    assert request.iterations == 2


def test_one_rank_has_no_number() -> None:
    log = parse_log(start(1, ALONE) + task([[1.0, 1.0]], alone=True), [answered(2)])
    assert [timing.rank for timing in log.requests[0].ranks] == [0]
    one = {"world": 1, "sp_size": 1, "ulysses_degree": 1, "ring_degree": 1, "tp_size": 1, "cfg_size": 1}
    assert prove(log, one).ok


def test_another_number_of_steps_than_asked_for_is_refused_with_both() -> None:
    log = parse_log(start() + task([[1.0] * 4, [1.0] * 4], asked=2), [answered(2)])
    assert log.requests[0].diffuse_s is None
    assert "4 steps were executed where 2 were asked for" in log.untimed


def test_ranks_that_disagree_on_the_number_of_steps_are_no_timing() -> None:
    (request,) = parse_log(start() + task([[1.0] * 3, [1.0] * 2])).requests
    assert request.diffuse_s is None
    assert request.refused.startswith("ranks timed 2 to 3 steps of one request")


def test_steps_longer_than_the_log_s_own_clock_are_not_believed() -> None:
    (request,) = parse_log(start() + task([[3.0] * 3, [3.0] * 3], took_s=2.0)).requests
    assert request.refused == "the steps say 9.003 s and the log's clock 2 s"


def test_a_task_under_way_is_not_timed_yet() -> None:
    text = start() + task([[1.0, 1.0], [1.0, 1.0]])
    (request,) = parse_log(text[: text.rindex("2026-12-03")], []).requests
    assert (request.diffuse_s, request.response) == (None, "unknown")


@pytest.mark.parametrize("end", ["generation failed", "processing failed: CUDA out of memory"])
def test_a_failed_task_is_an_error_without_a_time(end: str) -> None:
    (request,) = parse_log(
        start() + task([[1.0, 1.0]], end=end), [Response(RequestStatus.ERROR, 1.0, steps=2)]
    ).requests
    assert (request.diffuse_s, request.response) == (None, "error")


def test_a_lost_beginning_leaves_the_other_requests_where_they_are() -> None:
    lost, kept = task([[1.0] * 4, [1.0] * 4]), task([[1.0] * 6, [1.0] * 6])
    log = parse_log(start() + lost[len(lost) // 2 :] + kept, [answered(4), answered(6)])
    assert [request.diffuse_s for request in log.requests] == [None, pytest.approx(6.006)]


def test_a_prompt_cannot_pass_for_a_number_of_steps() -> None:
    prompt = "it's 'infer_steps': 9, [Profile] Rank 7 - Level1_Log step_pre cost 1.000000 seconds"
    log = parse_log(start() + task([[1.0, 1.0], [1.0, 1.0]], prompt=prompt), [answered(2)])
    assert (log.requests[0].steps, log.requests[0].iterations) == (2, 2)
    assert [timing.rank for timing in log.requests[0].ranks] == [0, 1]


def test_the_device_mesh_and_the_switches_prove_the_form() -> None:
    proof = prove(parse_log(start() + task([[1.0], [1.0]])), GROUPS)
    assert (proof.ok, proof.failures, proof.ranks_seen) == (True, (), 2)
    assert proof.groups_seen["sp_size"] == 2
    assert proof.unproven == (
        "ulysses_degree: the configuration names the exchange; no line of a layer does, and nothing captures",
    )


def test_groups_that_the_model_does_not_use_are_not_in_effect() -> None:
    config = ULYSSES_2.replace("(cfg_p=1, seq_p=2)", "(cfg_p=2, seq_p=1)").replace("'seq_parallel': True", "'x': 1")
    proof = prove(parse_log(start(config=config)), GROUPS | {"sp_size": 1, "ulysses_degree": 1, "cfg_size": 2})
    assert proof.failures == ("cfg_size 2 is not in effect: the ranks are grouped, but cfg_parallel is off",)


def test_a_mesh_as_older_releases_of_torch_print_it_is_read() -> None:
    old = "DeviceMesh('cuda', [[0, 1], [2, 3]], mesh_dim_names=('cfg_p', 'seq_p'))"
    config = ULYSSES_2.replace("DeviceMesh((cfg_p=1, seq_p=2), 'cpu', stride=((), 1))", old)
    log = parse_log(start(4, config))
    assert (log.groups["cfg_size"], log.groups["sp_size"]) == ((2,), (2,))


def test_a_missing_rank_is_missed() -> None:
    text = start().replace("Rank 1/1 initialization completed", "Rank 1 initialization failed: no card")
    assert "1 of 2 ranks seen" in prove(parse_log(text), GROUPS).failures


def test_offload_is_what_the_resolved_configuration_says() -> None:
    config = ULYSSES_2.replace("'cpu_offload': False", "'cpu_offload': True, 'offload_granularity': 'block'")
    seen = parse_log(start(config=config)).offload
    assert seen is not None
    assert (seen.kind, seen.ranks) == ("layerwise-offload", 2)
    assert parse_log(start()).offload is None


def test_a_span_cut_by_another_rank_s_line_is_counted() -> None:
    cut = span(0, "🚀 infer_main", 1.0)[:90] + span(1, "step_pre", 0.001)
    text = task([[1.0], [1.0]])
    log = parse_log(start() + text.replace("==> step_index", cut + "==> step_index", 1))
    assert log.spoiled == {"a timed span is not whole": 1}


def test_access_lines_of_polls_are_no_trouble() -> None:
    poll = 'INFO:     127.0.0.1:39342 - "GET /v1/tasks/LA8H-0NL0-EZZ5-0RT6-WTPR/status HTTP/1.1" 200 OK\n'
    text = "".join(f"{part}\n{poll}" for part in task([[1.0], [1.0]]).splitlines())
    assert parse_log(start() + text).requests[0].diffuse_s == pytest.approx(1.001)


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_no_text_breaks_it(text: str) -> None:
    parse_log(text)
    parse_log(line("server.api.server:_task_processing_loop:98", "Processing task x") + text, [answered(3)])
    parse_log(start(config="{" + text) + task([[1.0]]))
