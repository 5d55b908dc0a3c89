"""SGLang's log and dumps: what a request took, which ranks there were, and when a time is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_logs import answer, request, start, told

from anchormatrix.config.merge import load_settings
from anchormatrix.engines.find import open_engine
from anchormatrix.engines.sglang.dump import told_by
from anchormatrix.engines.sglang.parse import parse_log
from anchormatrix.measure.proof import prove
from anchormatrix.records.form import parse_form

ROOT = Path(__file__).resolve().parents[3]
CAPTURES = ROOT.parent / "shared" / "captures" / "sglang"


def test_a_dump_is_the_measurement_and_the_log_bears_it_out():
    log = parse_log(
        start() + request(2, 0.80004), [answer(told((0.45, 0.35), 0.80004))]
    )  # the line of the log says 0.8000
    (timed,) = log.requests
    assert (timed.steps, timed.iterations, timed.denominator) == (2, 2, "bar")
    assert timed.diffuse_s == 0.80004
    assert timed.step_s == pytest.approx(0.40002)
    assert timed.steps_s == (0.45, 0.35)
    assert (timed.encode_s, timed.decode_s, timed.response) == (0.05, 0.5, "sent")
    assert timed.forward_s == pytest.approx(1.35104)
    assert (timed.refused, log.findings) == ("", ())


def test_without_a_dump_the_line_of_the_log_times_it():
    (timed,) = parse_log(start() + request(4, 0.8), [answer(None, steps=4)]).requests
    assert (timed.diffuse_s, timed.steps_s, timed.forward_s) == (0.8, (), None)
    assert "no performance dump agrees with it: the log's own line times it" in timed.notes


def test_a_dump_that_agrees_with_no_request_is_not_used_and_said():
    log = parse_log(start() + request(2, 0.8), [answer(told((0.45, 0.36), 0.8102))])
    assert log.requests[0].diffuse_s == 0.8
    assert log.findings == ("1 performance dumps agree with no request of the log, and are not used",)


def test_a_request_without_an_answer_does_not_shift_those_behind_it():
    text = start() + request(2, 0.7) + request(2, 0.9)
    first, second = parse_log(text, [answer(None), answer(told((0.5, 0.4), 0.9))]).requests
    assert (first.steps_s, second.steps_s) == ((), (0.5, 0.4))


def test_a_request_that_is_still_running_has_no_time_yet():
    assert parse_log(start() + request(2, 0.8, end=False)).requests[0].diffuse_s is None
    assert parse_log(start() + request(2, 0.8, end=False) + request(2, 0.9)).requests[0].diffuse_s == 0.8


@pytest.mark.parametrize(
    ("said", "latency_s", "why"),
    [
        (told((0.4, 0.4), 0.8), 0.3, "the stage says 0.8 s and the client's clock 0.3 s"),
        (told((0.8, 0.8), 0.8), 9.0, "the stage says 0.8 s and its steps 1.6 s together"),
        (told((0.8,), 0.8), 9.0, "1 steps are timed where the progress bar counts 2"),
    ],
)
def test_a_time_that_another_clock_contradicts_is_refused(said, latency_s, why):
    (timed,) = parse_log(start() + request(2, 0.8), [answer(said, latency_s)]).requests
    assert (timed.diffuse_s, timed.step_s, timed.ranks) == (None, None, ())
    assert timed.refused == why


def test_a_bar_that_ran_longer_than_its_stage_refuses_the_stage():
    text = request(2, 0.8).replace(" 100%|██| 2/2 [00:00<00:00", " 100%|██| 2/2 [00:07<00:00")
    (timed,) = parse_log(start() + text).requests
    assert "the device was not waited for" in timed.refused


def test_a_message_behind_a_bar_s_state_is_read():
    text = request(2, 0.8).replace(
        "it/s]\n[12-03 07:11:48] [DenoisingStage] average", "it/s][12-03 07:11:48] [X] average"
    )
    text = text.replace("\n[12-03 07:11:48] [DenoisingStage] finished", "[12-03 07:11:48] [DenoisingStage] finished")
    (timed,) = parse_log(start() + text).requests
    assert (timed.diffuse_s, timed.iterations) == (0.8, 2)


def test_ranks_and_groups_are_those_that_the_server_resolved():
    log = parse_log(start())
    assert log.ranks == ("rank 0", "rank 1")
    assert log.groups["sp_size"] == log.groups["ulysses_degree"] == (2,)
    assert log.groups["tp_size"] == log.groups["ring_degree"] == (1,)


def test_all_gather_kv_is_told_from_ulysses_whose_groups_it_uses():
    log = parse_log(start(kv_gather_degree=2))
    assert (log.groups["allgather_degree"], log.groups["ulysses_degree"]) == ((2,), (1,))


def engine():
    return open_engine(load_settings(ROOT / "config" / "examples" / "cpu-sglang.yaml"))


def test_the_proof_of_a_form_holds_for_it_and_for_no_other():
    log = parse_log(start() + request(2, 0.8))
    assert prove(log, engine().expected_groups(parse_form("tp1-usp2"))).ok
    for other in ("tp2-usp1", "tp1-usp1-ag2", "tp1-usp1-cfg2", "tp1-usp4", "tp1-usp1"):
        assert not prove(log, engine().expected_groups(parse_form(other))).ok, other


def test_a_sequence_that_the_server_did_not_split_is_no_proof():
    line = (
        "[12-03 07:11:47] Latent time dim 3 is not divisible by SP degree 2; skipping sequence shard for correctness.\n"
    )
    log = parse_log(start() + request(2, 0.8) + line)
    proof = prove(log, engine().expected_groups(parse_form("tp1-usp2")))
    assert proof.failures == ("sp_size is 1, 2 asked for",)
    assert "skipping sequence shard" in log.findings[0]


def test_an_offload_is_the_one_of_the_resolved_arguments():
    assert parse_log(start()).offload is None
    assert parse_log(start(dit_layerwise_offload=True)).offload.kind == "layerwise-offload"
    assert parse_log(start(dit_cpu_offload=True)).offload.kind == "cpu-offload"


def test_a_stage_that_broke_off_is_no_time():
    text = request(2, 0.8).replace(
        "[DecodingStage] finished in 0.5000 seconds", "[DecodingStage] Error during execution after 500.0 ms: no memory"
    )
    (timed,) = parse_log(start() + text).requests
    assert (timed.diffuse_s, timed.response) == (None, "error")
    assert "DecodingStage broke off" in timed.notes


@given(st.text(alphabet='[]%|0123456789/:. aDenoisingStage\n\r{}"', max_size=300))
def test_no_text_raises(text):
    parse_log(start() + request(2, 0.8) + text)
    parse_log(text)


def test_a_captured_request_says_so_and_closes_nothing():
    line = "[12-03 07:11:47] Profiling request: 86d70b94 for 1 steps...\n"
    text = request(2, 0.8).replace("[12-03 07:11:47] [TextEncodingStage] started...\n", line)
    plain, captured = parse_log(start() + request(2, 0.8) + text).requests
    assert (plain.profiled, captured.profiled) == (False, True)


def dump(**changed):
    whole = {
        "total_duration_ms": 650.0,
        "steps": [{"name": "DenoisingStage", "duration_ms": 460.0}],
        "denoise_steps_ms": [{"step": 0, "duration_ms": 250.0}, {"step": 1, "duration_ms": 205.0}],
    }
    return json.dumps(whole | changed).encode()


def test_a_dump_is_read_in_seconds():
    read = told_by(dump())
    assert read is not None
    assert read.stages_s == {"DenoisingStage": 0.46, "whole request": 0.65}
    assert read.steps_s == (0.25, 0.205)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        dump()[:-20],
        dump(total_duration_ms=None),
        dump(steps=[]),
        dump(steps=[{"name": "DenoisingStage"}]),
        dump(steps=[{"name": "DenoisingStage", "duration_ms": float("nan")}]),
        dump(denoise_steps_ms=[{"step": 0, "duration_ms": -1}]),
        dump(denoise_steps_ms=["250"]),
    ],
)
def test_what_is_no_whole_dump_tells_nothing(content):
    assert told_by(content) is None


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="../shared/captures is not here")
def test_logs_of_a_real_server_are_read_and_fit_its_dumps():
    for name, steps in (("zimage-ulysses2", ("uly2_4", "uly2_10")), ("zimage-tp2", ("tp2_4", "tp2_10"))):
        answers = [
            answer(told_by((CAPTURES / f"perf_{part}.json").read_bytes()), 600.0, steps=int(part.rpartition("_")[2]))
            for part in steps
        ]
        log = parse_log((CAPTURES / f"{name}.log").read_text(errors="replace"), answers)
        assert [len(request.steps_s) for request in log.requests[:2]] == [4, 10], name
        assert all(request.step_s and not request.refused for request in log.requests[:2]), name
        assert log.findings == ()
        assert log.ranks == ("rank 0", "rank 1")
