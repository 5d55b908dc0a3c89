"""Stage times against the bar, the enclosing stages and the clock; lines without names, copied, cut or prefixed."""

from __future__ import annotations

import json

import pytest

from anchormatrix.engines.timing import Request, ServeLog
from anchormatrix.engines.vllm_omni.parse import parse_serve_log

HEAD = "[diffusion_pipeline_profiler.py:32] [DiffusionPipelineProfiler]"
RANK0, RANK1 = "(DiffusionWorker_TP0 pid=100) ", "(DiffusionWorker_TP1 pid=101) "


def begin(steps: int, stamp: str = "05-11 09:20:10") -> str:
    return (
        f"(APIServer pid=9) INFO {stamp} [async_omni.py:300] request sampling params: height=8 steps={steps} seed=1\n"
    )


def stage(name: str, took: str, prefix: str = RANK0, stamp: str = "05-11 09:20:13") -> str:
    return f"{prefix}INFO {stamp} {HEAD} {name} took {took}\n"


def bar(done: int, total: int, clock: str, prefix: str = "", label: str = "") -> str:
    return f"{prefix}{label}{100 * done // total:3d}%|█████| {done}/{total} [{clock}<00:00,  7.61s/it]"


def read(text: str) -> ServeLog:
    return parse_serve_log(text)


def one(text: str) -> Request:
    (request,) = read(text).requests
    return request


def test_a_stage_that_did_not_wait_for_the_device_is_refused_and_the_bar_is_shown() -> None:
    text = begin(41) + stage("P.encode_prompt", "0.510000s") + bar(41, 41, "05:12", RANK0) + "\n"
    text += stage("P.diffuse", "0.280000s") + stage("P.decode", "5.800000s") + stage("P.forward", "319.400000s")
    request = one(text)
    assert (request.diffuse_s, request.step_s, request.ranks, request.iterations) == (None, None, (), 41)
    assert request.bar_step_s == pytest.approx((7.6098, 0.0244), abs=1e-4)
    assert request.refused == (
        "the stage says 0.28 s where the progress bar ran for 5:12: the device was not waited for; "
        "forward says 319.4 s, of which the stages explain 6.59 s; "
        "7.61 s per step by the bar (5:12 for 41, to 0.024 s)"
    )
    assert read(text).untimed.startswith("the stage times of 1 of 1 requests are not usable: the stage says 0.28 s")


@pytest.mark.parametrize(
    ("took", "clock", "usable"),
    [
        ("312.400000s", "05:12", True),
        ("0.280000s", "05:12", False),
        ("3725.000000s", "1:02:05", True),
        ("125.000000s", "1:02:05", False),
        ("0.900000s", "00:01", True),
        ("0.400000s", "00:01", False),
        ("0.004200s", "00:00", True),
        ("700.000000s", "05:12", False),
    ],
)
def test_a_stage_is_held_against_the_bars_clock(took: str, clock: str, usable: bool) -> None:
    assert (one(begin(4) + bar(4, 4, clock, RANK0) + "\n" + stage("P.diffuse", took)).diffuse_s is not None) is usable


@pytest.mark.parametrize(
    ("diffuse", "others", "usable"),
    [
        ("8.0s", {"P.forward": "9.0s"}, True),
        ("0.28s", {"P.forward": "319.4s"}, False),
        ("0.02s", {"P.forward": "0.9s", "P.vae.decode": "0.2s", "P.text_encoder.forward": "0.03s"}, False),
        ("2.0s", {"P.forward": "11.0s", "P.vae.decode": "1.0s"}, True),  # an offload brought the weights in
        ("60.0s", {"P.forward": "319.4s", "P.decode": "5.8s", "P.encode_prompt": "0.5s"}, False),
        ("60.0s", {"P.forward": "180.0s", "P.decode": "5.8s", "P.encode_prompt": "0.5s"}, True),
        ("9.0s", {"P.forward": "8.0s"}, False),
        ("0.28s", {"P.sampler.diffuse": "300.0s"}, False),
        ("4.0s", {"P.sampler.diffuse": "3.9s"}, True),
    ],
)
def test_a_stage_is_held_against_those_round_it_and_in_it(diffuse: str, others: dict[str, str], usable: bool) -> None:
    text = begin(4) + stage("P.diffuse", diffuse) + "".join(stage(name, took) for name, took in others.items())
    assert (one(text).diffuse_s is not None) is usable


def test_a_stage_longer_than_the_time_between_its_lines_is_refused() -> None:
    text = begin(4, "05-11 09:20:00") + stage("P.diffuse", "8.000000s", stamp="05-11 09:20:08")
    text += begin(4, "05-11 09:20:10") + stage("P.diffuse", "40.000000s", stamp="05-11 09:20:15")
    assert [request.refused for request in read(text).requests] == [
        "",
        "the stage says 40 s where 5 s lie between the request's lines",
    ]
    assert read(text.replace("40.000000s", "5.900000s")).requests[1].diffuse_s == 5.9


def test_a_clock_that_stands_or_goes_back_is_no_witness_nor_one_that_the_bar_contradicts() -> None:
    again = begin(4, "05-11 09:20:10") + stage("P.diffuse", "40.000000s", stamp="05-11 09:20:15")
    assert [request.diffuse_s for request in read(again * 3).requests] == [40.0] * 3
    drawn = begin(4, "05-11 09:20:10") + bar(4, 4, "00:40") + "\n" + stage("P.diffuse", "40.000000s")
    log = read(drawn + drawn.replace("09:20", "09:21"))
    assert [request.diffuse_s for request in log.requests] == [40.0, 40.0]


def test_midnight_and_the_turn_of_the_year_are_no_step_back() -> None:
    text = begin(4, "12-31 23:59:50") + stage("P.diffuse", "8.0s", stamp="12-31 23:59:58")
    text += begin(4, "12-31 23:59:59") + stage("P.diffuse", "30.0s", stamp="01-01 00:00:07")
    assert [request.diffuse_s for request in read(text).requests] == [8.0, None]


# Prefixes


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[Stage-0] ", ""),
        ("(DiffusionWorker_SP0 pid=5) [Stage-0] ", "DiffusionWorker_SP0"),
        ("\x1b[1;36m(DiffusionWorker_SP0 pid=5)\x1b[0;0m ", "DiffusionWorker_SP0"),
        ("(Worker_TP0 pid=7) ", "Worker_TP0"),
        ("(VllmWorker rank=1 pid=12) ", "VllmWorker rank=1"),
        ("(RayWorkerWrapper pid=12, ip=10.0.0.3) ", "RayWorkerWrapper"),
        ("(RayWorkerWrapper pid=12) (DiffusionWorker_TP1 pid=12) ", "DiffusionWorker_TP1"),
        ("[rank0]: ", "rank0"),
        ("[rank 0] ", "rank0"),
        ("rank0: ", "rank0"),
        ("[default0]:", "rank0"),
        ("[1,0]<stdout>:", "rank0"),
        ("vllm-1  | ", ""),
        ("2026-05-11T09:20:13.123456789Z stderr F ", ""),
        ("[2026-05-11 09:20:13,123] ", ""),
        ("May 11 09:20:13 host vllm[12]: ", ""),
        ("[pod/omni-0/server] ", ""),
        ("[12345] ", ""),
    ],
)
def test_a_known_prefix_is_taken_off(prefix: str, rank: str) -> None:
    log = read(begin(10) + stage("P.diffuse", "1.650000s", prefix) + stage("P.vae.decode", "0.118000s", prefix))
    assert log.requests[0].step_s == pytest.approx(0.165)
    assert (log.ranks, log.findings, log.unusable_lines, log.stage_lines) == ((rank,), (), 0, 2)


@pytest.mark.parametrize("where", [0, 1])
def test_a_prefix_that_is_not_known_hides_nothing_and_is_named(where: int) -> None:
    prefix = ("@@odd 7@@ " + RANK0, RANK0 + "@@odd 7@@ ")[where]
    log = read((begin(10) + stage("P.diffuse", "1.65s", prefix) + stage("P.forward", "1.80s", prefix)) * 24)
    assert log.requests[23].step_s == pytest.approx(0.165)
    assert log.findings == ("48 stage lines begin with a prefix not understood: @@odd 7@@",)
    assert log.ranks == ("DiffusionWorker_TP0",)


@pytest.mark.parametrize("prefix", ["@@odd 7@@ ", "0: "])
def test_a_prefix_that_is_not_known_hides_no_bar(prefix: str) -> None:
    log = read(begin(41) + prefix + bar(41, 41, "05:12") + "\n" + stage("P.diffuse", "0.280000s", prefix))
    assert (log.requests[0].step_s, log.requests[0].denominator) == (None, "bar")
    assert log.untimed == (
        "the stage times of 1 of 1 requests are not usable: the stage says 0.28 s where the progress bar ran for 5:12: "
        "the device was not waited for; 7.61 s per step by the bar (5:12 for 41, to 0.024 s)"
    )


def test_a_label_behind_a_prefix_that_is_not_known_is_still_another_loops() -> None:
    tiles = "@@odd 7@@ VAE tiles: " + bar(10, 10, "05:12") + "\n"
    log = read(begin(10) + tiles + stage("P.diffuse", "1.650000s", "@@odd 7@@ "))
    assert (log.requests[0].step_s, log.requests[0].denominator) == (pytest.approx(0.165), "requested")


def test_a_line_whose_writer_was_cut_off_is_not_given_to_another() -> None:
    cut = stage("P.diffuse", "3.000000s", RANK1)[8:]
    log = read(begin(4) + stage("P.diffuse", "4.000000s") + stage("P.forward", "5.000000s", RANK1) + cut)
    assert (log.requests[0].diffuse_s, log.unusable_lines) == (4.0, 1)
    assert dict(log.spoiled) == {"a prefix not understood": 1}
    assert log.findings == ("1 stage lines begin with a prefix not understood: onWorker_TP1 pid=101)",)


def test_lines_that_a_collector_wrapped_into_json_are_unwrapped() -> None:
    wrapped = "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-05-11T09:20:13.1Z"}) + "\n"
        for line in (begin(4) + stage("P.diffuse", "8.0s")).splitlines()
    )
    assert one(wrapped).step_s == 2.0


# Ranks without names


def unnamed(steps: int, *diffuse: float, rest: bool = True) -> str:
    text = begin(steps) + "".join(stage("P.text_encoder.forward", "0.025s", "") for _ in diffuse if rest)
    text += "".join(stage("P.diffuse", f"{seconds:.6f}s", "") for seconds in diffuse)
    return text + "".join(stage("P.vae.decode", "0.118s", "") for _ in diffuse if rest)


def test_lines_of_ranks_without_names_are_never_summed() -> None:
    log = read(unnamed(4, 0.4412, 0.4451) + unnamed(10, 1.1030, 1.1124))
    assert [request.step_s for request in log.requests] == pytest.approx([0.1103, 0.1103])
    assert (log.ranks, [len(request.ranks) for request in log.requests]) == (("", ""), [2, 2])
    assert log.findings == ("stage lines name no rank; 2 ranks wrote them, by how many lines a request has",)


def test_one_rank_that_encodes_twice_and_logs_every_step_is_summed() -> None:
    text = "".join(
        begin(steps)
        + stage("P.text_encoder.forward", "0.02s", "") * 2
        + stage("P.diffuse", "0.500000s", "") * steps
        + stage("P.vae.decode", "0.1s", "")
        for steps in (4, 10)
    )
    log = read(text)
    assert [(request.diffuse_s, request.step_s) for request in log.requests] == [(2.0, 0.5), (5.0, 0.5)]
    assert log.ranks == ("",)


def test_steps_of_several_ranks_without_names_are_refused() -> None:
    text = begin(4) + stage("P.forward", "2.2s", "") * 2 + stage("P.diffuse", "0.500000s", "") * 8
    assert one(text).refused == "8 diffuse lines of 2 ranks without names cannot be told apart"


def test_alike_diffuse_lines_beside_stages_that_one_rank_logs_are_never_summed() -> None:
    text = begin(4) + stage("P.diffuse", "2.000000s", "") + stage("P.diffuse", "2.010000s", "")
    text += stage("P.vae.decode", "0.118s", "")
    assert one(text).refused == "2 diffuse lines name no rank: ranks or parts of one, nothing tells"
    assert one(text + stage("P.forward", "4.2s", "")).diffuse_s == pytest.approx(4.01)
    assert one(text.replace("2.010000s", "3.000000s")).diffuse_s == pytest.approx(5.0)


def test_lines_of_which_the_bar_bears_one_out_are_never_summed() -> None:
    lines = stage("P.diffuse", "8.000000s", "") + stage("P.diffuse", "7.000000s", "") + stage("P.vae.decode", "1s", "")
    request = one(begin(4) + bar(4, 4, "00:08") + "\n" + lines)
    assert (request.diffuse_s, request.refused) == (
        None,
        "2 diffuse lines name no rank: the progress bar bears one of them out, not their sum",
    )
    for parts in (bar(4, 4, "00:15"), bar(2, 2, "00:08") + "\n" + bar(2, 2, "00:07")):
        assert one(begin(4) + parts + "\n" + lines).diffuse_s == 15.0


def test_lines_of_a_named_rank_of_which_the_bar_bears_one_out_are_never_summed() -> None:
    lines = stage("P.diffuse", "7.000000s") + stage("P.diffuse", "8.000000s")
    request = one(begin(4) + bar(4, 4, "00:08") + "\n" + lines)
    assert (request.diffuse_s, request.refused) == (
        None,
        "2 diffuse lines are of DiffusionWorker_TP0: the progress bar bears one of them out, not their sum",
    )
    assert one(begin(4) + bar(4, 4, "00:15") + "\n" + lines).diffuse_s == 15.0


def test_diffuse_lines_alone_are_ranks_when_their_number_does_not_follow_the_steps() -> None:
    log = read(unnamed(4, 2.0, 2.1, rest=False) + unnamed(10, 5.0, 5.1, rest=False))
    assert [request.step_s for request in log.requests] == [0.5, 0.5]
    (request,) = read(unnamed(2, 2.0, 2.1, rest=False)).requests
    assert request.refused == "2 diffuse lines name no rank: ranks or parts of one, nothing tells"


def test_a_line_of_an_unnamed_rank_that_is_lost_leaves_no_time() -> None:
    log = read(unnamed(4, 2.0, 2.1) + unnamed(4, 2.0, 2.1).replace(stage("P.diffuse", "2.000000s", ""), ""))
    assert [request.diffuse_s for request in log.requests] == [2.0, None]
    assert log.requests[1].refused == "1 diffuse lines that name no rank, 2 are usual: not whole"


# Bars


def test_bars_are_the_same_by_carriage_return_by_newline_and_written_on() -> None:
    states = [bar(done, 4, f"00:{2 * done:02d}", RANK0 if done == 0 else "") for done in range(5)]
    for glue in ("\r", "\n", " "):
        request = one(begin(4) + glue.join(states) + "\n" + stage("P.diffuse", "8.1s"))
        assert (request.bars, request.denominator) == (((1, 2), (2, 4), (3, 6), (4, 8)), "bar"), repr(glue)


def test_a_stage_line_that_is_written_on_behind_a_bar_is_read() -> None:
    request = one(begin(4) + bar(4, 4, "00:08", RANK0) + stage("P.diffuse", "8.1s"))
    assert (request.diffuse_s, request.bars, request.ranks[0].tag) == (8.1, ((4, 8),), "DiffusionWorker_TP0")
    same_stream = one(begin(4) + bar(4, 4, "00:08", RANK0) + stage("P.diffuse", "8.1s", ""))
    assert same_stream.ranks[0].tag == "DiffusionWorker_TP0"


@pytest.mark.parametrize(
    "other",
    [
        bar(64, 64, "00:09"),
        bar(4, 4, "00:31", label="VAE tiles: "),
        bar(5, 5, "00:02", label="Loading required modules: "),
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [05:12<00:00,  1.2s/it]",
    ],
)
@pytest.mark.parametrize("named", [RANK0, ""])
def test_a_bar_of_another_loop_is_not_the_denoise_loops(other: str, named: str) -> None:
    alone = one(begin(4) + named + other + "\n" + stage("P.diffuse", "2.0s"))
    assert (alone.iterations, alone.denominator, alone.step_s) == (4, "requested", 0.5)
    beside = one(begin(4) + named + other + "\n" + bar(3, 3, "00:02", named) + "\n" + stage("P.diffuse", "2.1s"))
    assert (beside.iterations, beside.denominator, beside.bars) == (3, "bar", ((3, 2),))


def test_a_bar_that_begins_after_the_denoise_stage_is_another_loops() -> None:
    text = begin(4) + bar(4, 4, "00:02", RANK0) + "\n" + stage("P.diffuse", "2.1s")
    text += bar(4, 4, "00:31", RANK0) + "\n" + stage("P.vae.decode", "31.2s")
    assert (one(text).diffuse_s, one(text).bars) == (2.1, ((4, 2),))


def test_two_interleaved_bars_are_told_apart() -> None:
    lines = [bar(1, 4, "00:02"), bar(10, 64, "00:01"), bar(2, 4, "00:04"), bar(64, 64, "00:05"), bar(4, 4, "00:08")]
    request = one(begin(4) + "\r".join(lines) + "\n" + stage("P.diffuse", "8.1s"))
    assert (request.bars, request.iterations) == (((1, 2), (2, 4), (4, 8)), 4)


def test_a_model_that_executes_its_own_number_of_steps_is_divided_by_it() -> None:
    request = one(begin(50) + bar(8, 8, "00:16", RANK0) + "\n" + stage("P.diffuse", "16.4s"))
    assert (request.iterations, request.denominator, request.step_s) == (8, "bar", pytest.approx(2.05))


# Times, copies, names


@pytest.mark.parametrize(
    ("took", "seconds"),
    [("660.0ms", 0.66), ("660000us", 0.66), ("0.66 s", 0.66), ("6.6e-1s", 0.66)],
)
def test_a_stage_time_is_read_in_its_unit(took: str, seconds: float) -> None:
    assert one(begin(4) + stage("P.diffuse", took)).diffuse_s == pytest.approx(seconds)


@pytest.mark.parametrize("took", ["-0.66s", "0.000000s", "nans", "NaNs", "infs"])
def test_a_stage_time_that_is_no_positive_number_is_counted_and_not_used(took: str) -> None:
    log = read(begin(4) + stage("P.diffuse", took) + stage("P.diffuse", "0.66s", RANK1))
    assert (log.requests[0].diffuse_s, len(log.requests[0].ranks)) == (0.66, 1)
    assert log.spoiled == {"a stage time that is no positive number": 1}


def test_a_unit_that_is_not_known_is_no_time() -> None:
    assert read(begin(4) + stage("P.diffuse", "3 fortnights")).spoiled == {"a stage text that is cut": 1}


START = "INFO 05-11 09:19:00 [serve.py:405] Starting vLLM-Omni API server\n"
REQUEST = begin(4) + "".join(
    stage("P.diffuse", f"{8 + rank / 1e4:.6f}s", prefix) + stage("P.forward", "9.100000s", prefix)
    for rank, prefix in enumerate((RANK0, RANK1))
)


def test_a_log_that_was_collected_twice_counts_once() -> None:
    once = START + REQUEST + REQUEST.replace("8.0", "8.1")
    for text in (once * 2, "".join(line * 2 for line in once.splitlines(keepends=True))):
        log = read(text)
        assert [request.diffuse_s for request in log.requests] == [8.0, 8.1]
        assert (log.findings, log.stage_lines) == (("every line stands 2 times in the log: taken once",), 8)


def test_stage_lines_that_were_collected_twice_count_once() -> None:
    head, *stages = REQUEST.splitlines(keepends=True)
    for lines in ([line for line in stages for _ in (0, 1)], stages * 2):
        log = read(START + head + "".join(lines))
        assert log.requests[0].diffuse_s == 8.0
        assert log.findings == ("4 stage lines are copies to the microsecond of another of their rank: taken once",)


def test_an_outer_name_without_a_class_encloses_the_same_stage_under_another() -> None:
    request = one(begin(4) + stage("pipeline.diffuse", "3.9s") + stage("diffuse", "4.0s"))
    assert (request.diffuse_s, request.step_s) == (4.0, 1.0)


def test_parts_of_a_list_in_a_stages_name_are_read() -> None:
    assert read(begin(4) + stage("P.model.layers[0].forward", "0.1s")).stage_lines == 1


def test_ranks_are_named_in_different_styles_and_missing_ones_are_said() -> None:
    for style in ("(Worker_TP{0} pid=10{0}) ", "[rank{0}]: ", "[rank {0}] ", "(VllmWorker rank={0} pid=10{0}) "):
        first, second = style.format(0), style.format(1)
        text = begin(4) + stage("P.diffuse", "8.0s", second) + stage("P.diffuse", "8.2s", first)
        log = read(text + begin(4) + stage("P.diffuse", "8.1s", second))
        assert [[timing.rank for timing in request.ranks] for request in log.requests] == [[0, 1], [1]]
        assert log.requests[1].notes == ("the timing of rank 0 is not whole: the other ranks are used",)


def test_stage_lines_before_any_request_are_said_and_never_timed() -> None:
    warm_up = stage("P.diffuse", "30.0s") + stage("P.forward", "31.0s")
    log = read(warm_up + begin(4) + stage("P.diffuse", "8.0s"))
    assert [request.diffuse_s for request in log.requests] == [8.0]
    assert log.remarks == ("2 stage lines stand before any request begins: not counted as a request's",)
    assert read(warm_up).untimed == (
        "the server logs no whole diffuse stage of a request; 0 requests, 2 stage lines and 0 progress bars were seen; "
        "2 stage lines stand before any request begins: not counted as a request's"
    )


def test_what_is_missing_is_said_by_its_name() -> None:
    assert read(begin(4) + bar(4, 4, "00:08") + "\n").untimed == (
        "the server logs no stage times; 1 requests, 0 stage lines and 1 progress bars were seen"
    )
    missing = f"{RANK0}WARNING 05-11 09:19:00 {HEAD} Method path tokenizer.forward not found\n"
    log = read(missing + begin(4) + stage("P.forward", "9.0s"))
    assert log.unusable_lines == 0
    assert log.remarks == ("methods that the pipeline's profiler did not find: tokenizer.forward",)
    assert log.findings == ("no diffuse stage among those logged: P.forward",)


def test_a_bar_that_one_of_several_unnamed_ranks_drew_after_its_loop_is_another_loops() -> None:
    text = begin(4) + stage("P.diffuse", "2.10s", "") + bar(5, 5, "00:01") + "\n" + stage("P.diffuse", "2.11s", "")
    text += stage("P.forward", "3.5s", "") * 2
    assert (one(text).iterations, one(text).denominator) == (4, "requested")


def test_a_short_bar_of_more_than_was_asked_for_is_not_believed() -> None:
    request = one(begin(4) + bar(64, 64, "00:01", RANK0) + "\n" + stage("P.diffuse", "1.6s"))
    assert (request.iterations, request.step_s) == (4, 0.4)


def test_weights_that_an_offload_brings_in_are_no_contradiction() -> None:
    told = (
        RANK0 + "INFO 05-11 09:19:00 [layerwise_backend.py:479] Layer-wise offloading enabled on 40 layers (blocks)\n"
    )
    text = begin(4) + stage("P.diffuse", "2.0s") + stage("P.forward", "20.0s")
    text += stage("P.vae.decode", "1.0s") + stage("P.text_encoder.forward", "0.1s")
    assert one(text).refused == "forward says 20 s, of which the stages explain 3.1 s"
    assert one(told + text).diffuse_s == 2.0


def test_the_text_encoder_is_encoding() -> None:
    text = begin(4) + stage("P.text_encoder.forward", "0.025s") * 2 + stage("P.diffuse", "8.0s")
    request = one(text + stage("P.vae.decode", "0.5s") + stage("P.forward", "8.6s"))
    assert (request.encode_s, request.decode_s, request.forward_s) == (0.05, 0.5, 8.6)


@pytest.mark.parametrize("unit", [" ", "sampling params: x, ", "INFO 05-11 09:20:13 [", "(D pid=1) ", "0%|", "[rank"])
def test_a_hostile_line_costs_no_more_than_its_length(unit: str) -> None:
    long = unit * (60_000 // len(unit))
    log = read(begin(4) + long + stage("P.diffuse", "8.0s") + long + "\n" + begin(4) + stage("P.diffuse", "8.1s"))
    assert log.requests[-1].diffuse_s == 8.1


def test_a_foreign_prefix_is_shown_short_and_printable() -> None:
    (finding,) = read(begin(4) + stage("P.diffuse", "8.0s", "\x07odd\x00" + "y" * 500 + " ")).findings
    assert finding == f"1 stage lines begin with a prefix not understood:  odd {'y' * 75}"
