"""Steps cut out of whole requests: against drawn requests whose steps are known, and against real servers' traces."""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import whole_requests as whole

from anchormatrix.attribution.steps import check_identities, choose_step, decompose, outside
from anchormatrix.attribution.summary import AttributionOptions, attribute_directory
from anchormatrix.captures.cutting.cut import cut
from anchormatrix.captures.cutting.request import Request
from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import OUTSIDE, Capture
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import AttributionStatus

SGLANG = Path(__file__).resolve().parents[3] / "shared" / "captures" / "sglang"
PLAIN = whole.Request(steps=5, branches=1, layers=12, encoder_layers=5, tiles=5)
ANNOTATION = "ProfilerStep#0"


def made(request: whole.Request, seed: int = 1) -> whole.Trace:
    return whole.made(request, random.Random(seed))


def asked(request: whole.Request, trace: whole.Trace, *, timed: bool = True) -> Request:
    begins = trace.begins()
    seconds = (begins[-1] - begins[0]) / 1e6 if timed else None
    return Request(request.steps, branches=request.branches, layers=request.layers, diffuse_s=seconds)


def cut_trace(trace: whole.Trace, request: Request, folder: Path, **how: object) -> Capture:
    whole.write(trace, folder, annotation=ANNOTATION, **how)
    return cut(load_capture(folder), request)


def doubt_us(capture: Capture) -> float:
    said = [re.search(r"certain to ([\d.]+) ms", note) for note in capture.notes]
    return max([1000 * float(one[1]) for one in said if one], default=0.0)


def begins(capture: Capture, rank: int = 0) -> dict[int, int]:
    windows = capture.windows[capture.windows["rank"] == rank]
    return dict(zip(windows["step"].tolist(), (windows["start_ns"] // 1000).tolist(), strict=True))


@pytest.mark.parametrize(
    ("seeds", "timed"),
    [*((range(start, start + 50), True) for start in range(0, 200, 50)), (range(200, 240), False)],
    ids=str,
)
def test_every_boundary_of_drawn_requests_is_right_or_refused(tmp_path, seeds, timed):
    told = 0
    for seed in seeds:
        request, draw = whole.drawn(seed)
        trace = whole.made(request, draw)
        try:
            found = cut_trace(trace, asked(request, trace, timed=timed), tmp_path)
        except InputError:
            continue
        told += 1
        true, allowed = dict(enumerate(trace.begins(), 1)), doubt_us(found)
        for step, begin in begins(found).items():
            assert abs(begin - true[step]) <= allowed, (seed, step, begin - true[step], allowed)
    assert told >= len(seeds) // 2


def test_text_encoder_and_decoder_are_outside_and_each_step_has_its_own_kernels(tmp_path):
    trace = made(PLAIN)
    found = cut_trace(trace, asked(PLAIN, trace), tmp_path)
    ordered = sorted(trace.kernels, key=lambda one: one.start)
    expected = [one.step + 1 if one.step >= 0 else OUTSIDE for one in ordered]
    assert found.kernels["step"].tolist() == expected
    assert found.step_ids == (1, 2, 3, 4, 5)
    assert found.cut.startswith("cut from the request by the repetition of its kernels (5 times ")
    table = decompose(found)
    assert check_identities(table) == []
    for row in table.to_dict("records"):
        mine = [one for one in trace.main if one.step == row["step"] - 1]
        assert row["computing_ns"] == 1000 * sum(one.end - one.start for one in mine)
    (beside,) = outside(found)
    assert beside.kernels == sum(one.step < 0 for one in trace.kernels)
    assert choose_step(table, found.cut).why.endswith(found.cut)


def test_the_attribution_says_that_its_step_was_cut(tmp_path):
    trace = made(PLAIN)
    whole.write(trace, tmp_path, annotation=ANNOTATION)
    options = AttributionOptions(layers=12, request=asked(PLAIN, trace))
    found = attribute_directory(tmp_path, options)
    assert found.status is AttributionStatus.ANALYSED
    assert "cut from the request" in found.steps.why
    assert [row.step for row in found.steps.all] == [1, 2, 3, 4, 5]
    (family,) = found.collectives.ranks[0].families
    assert (family.family, family.calls, family.calls_per_layer) == ("sendRecv", 2 * 12 * 5, 2.0)


def test_without_the_request_a_whole_one_is_one_step(tmp_path):
    trace = made(PLAIN)
    whole.write(trace, tmp_path, annotation=ANNOTATION)
    assert load_capture(tmp_path).step_ids == (0,)


def test_ranks_are_cut_alike_each_by_its_own_clock(tmp_path):
    trace = made(PLAIN)
    late = whole.Trace(
        [
            replace(one, start=one.start + 7000, end=one.end + 7000, launched=one.launched + 7000)
            for one in trace.kernels
        ]
    )
    whole.write(trace, tmp_path, 0, annotation=ANNOTATION)
    whole.write(late, tmp_path, 1, annotation=ANNOTATION)
    found = cut(load_capture(tmp_path), asked(PLAIN, trace))
    assert {step: at + 7000 for step, at in begins(found, 0).items()} == begins(found, 1)


def test_a_step_that_a_cache_shortened_is_said_and_shifts_no_other(tmp_path):
    request = replace(PLAIN, steps=6, hits=frozenset({3}))
    trace = made(request)
    found = cut_trace(trace, asked(request, trace), tmp_path)
    assert list(begins(found).values()) == trace.begins()[:-1]
    (said,) = [one.text for one in found.findings if one.kind == "uneven_steps"]
    usual, short = (sum(one.step == step for one in trace.main) for step in (1, 3))
    assert said == f"unlike the usual step of {usual} kernels are step 4 {short}"


def test_guidance_branches_are_one_step(tmp_path):
    request = replace(PLAIN, branches=2)
    trace = made(request)
    assert list(begins(cut_trace(trace, asked(request, trace), tmp_path)).values()) == trace.begins()[:-1]


def test_kernels_of_a_graph_are_told_apart(tmp_path):
    request = replace(PLAIN, graph=True)
    trace = made(request)
    assert list(begins(cut_trace(trace, asked(request, trace), tmp_path)).values()) == trace.begins()[:-1]


def test_without_launches_other_streams_go_by_their_start(tmp_path):
    trace = made(PLAIN)
    found = cut_trace(trace, asked(PLAIN, trace), tmp_path, launches=False)
    assert list(begins(found).values()) == trace.begins()[:-1]


def test_modules_tell_what_repetition_cannot(tmp_path):
    request = replace(PLAIN, steps=2, branches=2)
    trace = made(request)
    whole.write(trace, tmp_path, annotation=ANNOTATION, modules=True)
    found = cut(load_capture(tmp_path), asked(request, trace))
    assert found.cut == "cut from the request by the calls of nn.Module: SmallTransformer3DModel"
    assert list(begins(found).values()) == [trace.calls[0][0], trace.calls[2][0]]
    named = {
        one.step
        for one, step in zip(sorted(trace.kernels, key=lambda one: one.start), found.kernels["step"], strict=True)
        if step == 2
    }
    assert named == {1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"iterations": 1, "diffuse_s": None}, None),
        ({"iterations": 1, "diffuse_s": 0.002}, "one step does not repeat"),
        ({"iterations": 7}, r"\d+ repeats were found where 7 steps were expected"),
        ({"iterations": 7, "branches": 2}, r"where 7 steps × 2 branches = 14 were expected"),
        ({"layers": 999}, "the steps cannot be told"),
    ],
)
def test_what_is_expected_and_not_found_is_refused(tmp_path, change, said):
    trace = made(PLAIN)
    request = replace(asked(PLAIN, trace), **change)
    if said is None:
        assert cut_trace(trace, request, tmp_path).cut == ""
        return
    with pytest.raises(InputError, match=said) as refused:
        cut_trace(trace, request, tmp_path)
    assert "--step-execution" in str(refused.value)


def test_parts_that_repeat_as_often_as_the_steps_are_not_taken_for_them(tmp_path):
    """A text encoder with as many layers, and a decoder with as many tiles, as there are steps."""
    trace = made(PLAIN)
    main = [replace(one, step=-1) for one in trace.main if one.step < 0]
    with pytest.raises(InputError, match="the steps cannot be told"):
        cut_trace(whole.Trace(main), replace(asked(PLAIN, trace), diffuse_s=None), tmp_path)


def test_steps_that_are_annotated_stay_as_they_are(tmp_path):
    trace = made(PLAIN)
    events = list(whole.events(trace))
    for number, (begin, end) in enumerate(zip(trace.begins()[:-1], trace.begins()[1:], strict=True)):
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
            | {"ts": begin, "dur": end - begin}
        )
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    capture = load_capture(tmp_path)
    assert cut(capture, asked(PLAIN, trace)) is capture


def test_one_annotated_step_of_a_longer_request_is_a_step(tmp_path):
    trace = made(PLAIN)
    request = asked(PLAIN, trace)
    one = whole.Trace([kernel for kernel in trace.kernels if kernel.step == 2])
    whole.write(one, tmp_path)
    capture = load_capture(tmp_path)
    assert cut(capture, request) is capture


def test_steps_that_take_another_time_than_the_server_says_are_a_finding(tmp_path):
    trace = made(PLAIN)
    request = asked(PLAIN, trace)
    found = cut_trace(trace, replace(request, diffuse_s=0.8 * (request.diffuse_s or 0)), tmp_path)
    assert [one.kind for one in found.findings] == ["cut_seconds"]


@pytest.mark.skipif(not SGLANG.is_dir(), reason="../shared/captures is not here")
@pytest.mark.parametrize(
    ("name", "branches", "by_repetition"),
    [
        ("wan-cfg2", 1, True),
        ("wan-ulysses2-masked-without-effect", 2, False),  # each step has its own operators: refused
        ("zimage-1rank", 1, True),
        ("zimage-kvgather2", 1, True),
        ("zimage-tp2", 1, True),
        ("zimage-ulysses2", 1, True),
    ],
)
@pytest.mark.parametrize("modules", [True, False])
def test_the_steps_of_a_real_server_begin_in_their_annotations(tmp_path, name, branches, by_repetition, modules):
    """The four annotations are taken away; each step then begins within the first tenth of its own."""
    document = json.loads(gzip.decompress((SGLANG / name / "rank0.trace.json.gz").read_bytes()))
    true = sorted(
        (float(e["ts"]), float(e["dur"]))
        for e in document["traceEvents"]
        if str(e.get("name")).startswith("ProfilerStep#") and e.get("cat") == "user_annotation"
    )
    kept = [
        e
        for e in document["traceEvents"]
        if not str(e.get("name")).startswith("ProfilerStep#") and (modules or e.get("cat") != "python_function")
    ]
    (tmp_path / "rank0.json").write_text(json.dumps({**document, "traceEvents": kept}))
    seconds = (true[-1][0] + true[-1][1] - true[0][0]) / 1e6
    request = Request(4, branches=branches, diffuse_s=seconds)
    if not modules and not by_repetition:
        with pytest.raises(InputError, match="cannot be told"):
            cut(load_capture(tmp_path), request)
        return
    found = begins(cut(load_capture(tmp_path), request))
    usual = median(length for _, length in true)
    assert [0 <= at - start < usual / 10 for at, (start, _) in zip(found.values(), true, strict=True)] == [True] * 4
