"""Requests that nothing in the log announces: images, told by their lines, the access line and the answer."""

from __future__ import annotations

import pytest

from anchormatrix.engines.client import Response, Told
from anchormatrix.engines.vllm_omni.parse import parse_serve_log
from anchormatrix.records.requests import Basis, RequestStatus, Witness

SERVING = "(APIServer pid=7) INFO:     Application startup complete.\n"


def stage(rank: int, name: str, seconds: float, pipeline: str = "QwenImagePipeline") -> str:
    head = f"(DiffusionWorker_SP{rank} pid={100 + rank}) INFO 12-03 08:00:00 [diffusion_pipeline_profiler.py:32]"
    return f"{head} [DiffusionPipelineProfiler] {pipeline}.{name} took {seconds:.6f}s\n"


def access(status: int = 200) -> str:
    word = "OK" if status == 200 else "Internal Server Error"
    return f'(APIServer pid=7) INFO:     127.0.0.1:5 - "POST /v1/images/generations HTTP/1.1" {status} {word}\n'


def image(loop_s: float, *, ranks: int = 2, diffuse: bool = True, late: bool = False) -> str:
    """One image request: every rank's lines, the last of the second rank after the answer where it is ``late``."""
    pipeline = "QwenImagePipeline" if diffuse else "ZImagePipeline"
    text = "".join(stage(rank, "text_encoder.forward", 0.2, pipeline) for rank in range(ranks))
    for rank in range(ranks):
        text += stage(rank, "diffuse", loop_s + 0.001 * rank, pipeline) if diffuse else ""
    text += "".join(stage(rank, "vae.decode", 0.1, pipeline) for rank in range(ranks))
    forward = [stage(rank, "forward", loop_s + 0.001 * rank + 0.3, pipeline) for rank in range(ranks)]
    return text + forward[0] + (access() + forward[1] if late else "".join(forward[1:]) + access())


def answer(steps: int, loop_s: float, *, diffuse: bool = True, latency_s: float = 30.0) -> Response:
    pipeline = "QwenImagePipeline" if diffuse else "ZImagePipeline"
    stages = {
        f"{pipeline}.text_encoder.forward": 0.2,
        f"{pipeline}.vae.decode": 0.1,
        f"{pipeline}.forward": loop_s + 0.3,
    }
    told = Told({**stages, **({f"{pipeline}.diffuse": loop_s} if diffuse else {})})
    return Response(RequestStatus.OK, latency_s, told=told, steps=steps)


WARM_UP = image(0.5).replace(access(), "")  # before the server takes requests


@pytest.mark.parametrize("late", [False, True])
def test_each_image_request_is_told_with_its_steps_from_what_was_asked(late: bool) -> None:
    text = WARM_UP + SERVING + image(4.0, late=late) + image(20.0, late=late) + image(4.4, late=late)
    log = parse_serve_log(text, [answer(4, 4.0), answer(20, 20.0), answer(4, 4.4)])
    assert [(request.steps, request.step_s, len(request.ranks)) for request in log.requests] == [
        (4, 1.0, 2),
        (20, 1.0, 2),
        (4, 1.1, 2),
    ]
    assert {request.witness for request in log.requests} == {Witness.BOTH}
    assert {request.response for request in log.requests} == {"sent"}


def test_a_pipeline_without_a_stage_of_its_loop_is_timed_by_what_is_in_no_other_stage() -> None:
    text = SERVING + image(4.0, diffuse=False) + image(20.0, diffuse=False)
    log = parse_serve_log(text, [answer(4, 4.0, diffuse=False), answer(20, 20.0, diffuse=False)])
    assert [request.step_s for request in log.requests] == [pytest.approx(1.0), pytest.approx(1.0)]
    assert {(request.basis, request.witness) for request in log.requests} == {(Basis.REMAINDER, Witness.BOTH)}
    assert "no diffuse stage among those logged: ZImagePipeline.forward" in log.findings[0]


def test_without_an_answer_the_bar_says_how_many_steps_and_without_a_bar_nothing_does() -> None:
    bar = "(DiffusionWorker_SP0 pid=100)  50%|█████     | 2/4 [00:02<00:02,  1.00s/it]\r"
    bar += "100%|██████████| 4/4 [00:04<00:00,  1.00s/it]\n"
    first = stage(0, "text_encoder.forward", 0.2) + bar + image(4.0).replace(stage(0, "text_encoder.forward", 0.2), "")
    drawn, silent = parse_serve_log(SERVING + first), parse_serve_log(SERVING + image(4.0))
    assert [(request.iterations, request.denominator, request.step_s) for request in drawn.requests] == [
        (4, "bar", 1.0)
    ]
    assert [(request.iterations, request.diffuse_s, request.step_s) for request in silent.requests] == [(0, 4.0, None)]


def test_a_request_whose_lines_the_log_lost_rests_on_its_answer_and_shifts_no_other() -> None:
    text = SERVING + image(4.0) + access() + image(4.4)
    log = parse_serve_log(text, [answer(4, 4.0), answer(20, 20.0), answer(4, 4.4)])
    assert [request.step_s for request in log.requests] == [1.0, 1.0, 1.1]
    assert [request.witness for request in log.requests] == [Witness.BOTH, Witness.ANSWER, Witness.BOTH]


def test_an_answer_that_contradicts_the_log_or_the_clock_is_no_time() -> None:
    text = SERVING + image(4.0)
    told = Told({"QwenImagePipeline.text_encoder.forward": 0.2, "QwenImagePipeline.diffuse": 7.0})
    (request,) = parse_serve_log(text, [Response(RequestStatus.OK, 30.0, told=told, steps=4)]).requests
    assert (request.diffuse_s, request.refused) == (None, "the answer says 7 s and the log 4 s")
    (early,) = parse_serve_log(SERVING, [answer(4, 4.0, latency_s=1.0)]).requests
    assert early.diffuse_s is None
    assert early.refused == "the answer says 4 s and came after 1 s"


def test_a_refused_request_is_one_without_a_time() -> None:
    text = SERVING + image(4.0) + access(500) + image(4.4)
    refused = Response(RequestStatus.ERROR, 0.1, error="HTTP 500", steps=20)
    log = parse_serve_log(text, [answer(4, 4.0), refused, answer(4, 4.4)])
    assert [(request.steps, request.step_s, request.response) for request in log.requests] == [
        (4, 1.0, "sent"),
        (20, None, "error"),
        (4, 1.1, "sent"),
    ]


def test_the_request_under_way_follows_those_that_were_answered() -> None:
    text = SERVING + image(4.0) + image(20.0).replace(access(), "")
    log = parse_serve_log(text, [answer(4, 4.0)])
    assert [request.diffuse_s for request in log.requests] == [4.0, 20.0]


def silent_answer(steps: int, latency_s: float) -> Response:
    """An answer that tells no times, as those of releases before 0.20."""
    return Response(RequestStatus.OK, latency_s, steps=steps)


def test_without_times_in_the_answers_a_lost_image_shifts_no_steps() -> None:
    text = SERVING + image(4.0) + image(4.2)  # the log lost the second of 4, 10 and 4 steps
    log = parse_serve_log(text, [silent_answer(4, 4.5), silent_answer(10, 10.5), silent_answer(4, 4.7)])
    assert [request.step_s for request in log.requests[:3]] == [None, None, None]
    assert log.requests[0].notes == ("nothing in the log can be told to be of it",)


def test_another_clients_image_is_nobodys_here() -> None:
    text = SERVING + image(20.0) + image(4.0) + image(10.0)  # the first is another client's
    blind = parse_serve_log(text, [silent_answer(4, 4.5), silent_answer(10, 10.5)])
    assert [request.step_s for request in blind.requests[:2]] == [None, None]
    told = parse_serve_log(text, [answer(4, 4.0), answer(10, 10.0)])
    assert [request.step_s for request in told.requests[:2]] == [1.0, 1.0]
    assert told.requests[0].witness is Witness.BOTH


def test_an_image_that_is_not_answered_yet_takes_no_time_from_the_answered() -> None:
    text = SERVING + image(4.0) + stage(0, "text_encoder.forward", 0.2)
    log = parse_serve_log(text, [silent_answer(4, 4.5)])
    assert [request.step_s for request in log.requests] == [1.0, None]
