"""Every figure of every analysis, held against the timeline that the capture was written from.

The timeline's truth is computed by walking over all edges, with none of the code under test; a figure may differ by
0.1 % or 1 µs. Each case shows one thing: masking, exposed reverse parts, two communicators, offload gathers in the same
group, leaked work, unequal exchanges, tensor parallelism, ring, all-gather-KV, pipeline, stragglers, transport faults.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from anchormatrix.attribution.bubbles import BubbleOptions, bubbles
from anchormatrix.attribution.collectives import check_streams, collectives, reconcile
from anchormatrix.attribution.effect import check_effect
from anchormatrix.attribution.masking import MaskOptions, mask_bounds
from anchormatrix.attribution.steps import check_agreement, check_stragglers, choose_step, decompose
from anchormatrix.attribution.transport import reconcile_transport
from anchormatrix.captures.ascend import ascend_core
from anchormatrix.captures.open import load_capture
from anchormatrix.captures.table import Capture
from anchormatrix.records.form import parse_form
from anchormatrix.records.waits import GapShare
from virtualhost.server.chrome import write_kineto
from virtualhost.server.profiler import STYLES, write_ascend
from virtualhost.truth.cases import CASES, build_case

NAMES = [name for name in CASES if not name.startswith("transport_")]
STEP_PARTS = ("stage_ns", "computing_ns", "exposed_ns", "overlapped_ns", "communication_ns", "free_ns")
STYLE_NAMES = list(STYLES)
LAYERS = 6


@cache
def case_of(name: str) -> tuple[Any, dict[str, Any]]:
    return build_case(name)


pytestmark = pytest.mark.xdist_group("truth")  # a case is simulated once, by one worker


@pytest.fixture(scope="module", params=NAMES)
def case(request, tmp_path_factory):
    """A case's capture as one of the profiler's versions writes it (a different one for each case, clocks apart)."""
    timeline, truth = case_of(request.param)
    named = STYLE_NAMES[NAMES.index(request.param) % len(STYLE_NAMES)]
    skew = tuple(rank * 123_456_789 for rank in timeline.ranks)
    folder = tmp_path_factory.mktemp(request.param)
    write_ascend(timeline, folder, style=replace(STYLES[named], skew_ns=skew))
    return request.param, load_capture(folder), truth


def close(found: float | None, true: float | None) -> bool:
    """Within 0.1 % or 1 µs (times in ns)."""
    if found is None or true is None:
        return found is true
    return abs(found - true) <= max(1000, 0.001 * abs(true))


def in_ns(record: Any, part: str) -> float:
    """A time of a record, by the truth's name for it."""
    return float(getattr(record, f"{part.removesuffix('_ns')}_ms")) * 1e6


def share_close(found: float, true: float) -> bool:
    return abs(found - true) <= 0.001 * max(abs(true), 1e-9) + 1e-9


def steps_agree(table, truth) -> None:
    for row, one in zip(table.to_dict("records"), truth["ranks"], strict=True):
        assert row["rank"] == one["rank"]
        for part in STEP_PARTS:
            assert close(row[part], one["step"][part]), (row["rank"], part, row[part], one["step"][part])


def test_the_step_from_the_profilers_table_and_from_the_kernels(case):
    _, capture, truth = case
    steps_agree(decompose(capture), truth)
    steps_agree(decompose(replace(capture, steps=None)), truth)
    assert check_agreement(capture)[0] == pytest.approx(0, abs=1e-4)


def test_every_family_and_communicator(case):
    _, capture, truth = case
    found = collectives(capture, layers=LAYERS)
    for mine, one in zip(found.ranks, truth["ranks"], strict=True):
        rows = {(family.family, family.communicator): family for family in mine.families}
        assert len(rows) == len(one["families"])
        for family in one["families"]:
            row = rows[family["family"], str(family["communicator"])]
            assert row.calls == family["calls"]
            assert row.calls_per_layer == pytest.approx(family["calls"] / LAYERS, abs=1e-6)
            for key in ("sum", "median", "max", "union"):
                assert close(1e6 * getattr(row, f"{key}_ms"), family[f"{key}_ns"])
            assert share_close(row.union_over_sum, family["union_ns"] / family["sum_ns"])


def test_calls_left_over_are_reported_exactly_where_there_are_any(case):
    _, capture, truth = case
    found = reconcile(collectives(capture), layers=LAYERS)
    true = {one["rank"] for one in truth["ranks"] for f in one["families"] if f["remainder"] and f["calls"] > LAYERS}
    assert {rank for finding in found for rank in finding.ranks} == true


def test_overlap_between_families(case):
    _, capture, truth = case
    for mine, one in zip(collectives(capture).ranks, truth["ranks"], strict=True):
        found = {(overlap.a, overlap.b): overlap.share for overlap in mine.overlap}
        families = [tuple(f["family"] for f in one["families"])]
        for pair in one["overlap"]:
            (a, first), (b, second) = sorted((tuple(pair["a"]), tuple(pair["b"])))
            if families[0].count(a) == families[0].count(b) == 1:
                assert share_close(found[a, b], pair["share"])
            elif a == b:
                assert share_close(found[f"{a}:{first}", f"{b}:{second}"], pair["share"])


def test_what_runs_on_the_streams(case):
    name, capture, truth = case
    style = STYLES[STYLE_NAMES[NAMES.index(name) % len(STYLE_NAMES)]]
    for mine, one in zip(collectives(capture).ranks, truth["ranks"], strict=True):
        true: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for row in one["streams"]:
            if row["stream"] != "copy":
                core = style.collectives if row["core"] == "HCCL" else row["core"]
                entry = true[ascend_core(core)]
                entry[0], entry[1] = entry[0] + row["kernels"], entry[1] + row["total_ns"]
        assert {stream.core for stream in mine.streams} == set(true)
        for core, (kernels, total) in true.items():
            found = [stream for stream in mine.streams if stream.core == core]
            assert sum(stream.kernels for stream in found) == kernels
            assert close(1e6 * sum(stream.total_ms for stream in found), total)


def test_compute_on_the_masking_stream_is_found_where_it_leaked_and_nowhere_else(case):
    name, capture, _ = case
    assert bool(check_streams(capture)) is (name == "leaked_transforms")


def options_of(name: str, truth: dict[str, Any]) -> BubbleOptions:
    split, chunks = CASES[name].split, truth["ranks"][0]["masking"]["chunks"]
    kind = "allGather" if split.ag > 1 else "batchSendRecv" if split.ring > 1 else "alltoall" if split.usp > 1 else None
    present = {f["family"] for f in truth["ranks"][0]["families"]}
    kind = "alltoallv" if "alltoallv" in present else kind if kind in present else None
    forward = 3 * chunks if kind in ("alltoall", "alltoallv") else None
    return BubbleOptions(layers=LAYERS, collective=kind, group_split=forward, chunks=chunks)


def test_bubbles_and_the_three_tests(case):
    name, capture, truth = case
    found = bubbles(capture, choose_step(decompose(capture)).step, options_of(name, truth))
    for mine, one in zip(found, (rank["bubbles"] for rank in truth["ranks"]), strict=True):
        for part in ("span_ns", "busy_ns", "gap_ns", "gap_with_collective_ns", "gap_empty_ns", "gap_released_ns"):
            assert close(in_ns(mine, part), one[part]), (mine.rank, part)
        groups_agree(mine.groups, one["groups"])
        lag = None if mine.producer_lag_ms.median is None else mine.producer_lag_ms.median * 1e6
        if name == "offload_gather":  # weights travel in the same group: their calls cannot be told from K and V
            assert lag is None
            assert "17 calls cannot be paired with 6 attention kernels" in mine.findings[0].text
        elif name == "leaked_transforms":  # its truth counts from the leaked unpacking, which ends after the collective
            assert lag is not None
            assert lag > one["producer_lag_median_ns"]
        else:
            assert close(lag, one["producer_lag_median_ns"]), (mine.rank, mine.findings)
            assert mine.producer_lag_ms.within_100us_share == pytest.approx(one["within_100us_share"], abs=1e-6)


def groups_agree(found: tuple[GapShare, ...], true: list[dict[str, Any]]) -> None:
    """Hold each group, whole or split into forward and reverse, against the sum of the parts it consists of."""
    for row in found:
        label, _, part = row.group.partition(" ")
        parts = [
            one
            for one in true
            if label == f"{one['family']}:{one['communicator']}" and (not part or one["part"] == part)
        ]
        assert row.calls == sum(one["calls"] for one in parts)
        for key in ("total_ns", "exposed_ns", "overlap_attention_ns"):
            assert close(in_ns(row, key), sum(one[key] for one in parts)), (row.group, key)
    assert sum(row.calls for row in found) == sum(one["calls"] for one in true)


def test_masking_bounds_of_every_family_and_communicator(case):
    _, capture, truth = case
    table = decompose(capture)
    step = choose_step(table).step
    expected: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
    for one in truth["ranks"]:
        for true in one["masking"]["bounds"]:
            expected[true["family"], str(true["communicator"])][one["rank"]] = true
    for (family, gid), by_rank in expected.items():
        if len(by_rank) < len(truth["ranks"]):
            continue  # a communicator, or a pipeline stage's send, that some ranks have no part in
        options = MaskOptions(
            layers=LAYERS, chunks=truth["ranks"][0]["masking"]["chunks"], family=family, communicator=gid
        )
        for found, one in zip(mask_bounds(capture, table, step, options), truth["ranks"], strict=True):
            assert close(in_ns(found, "c_total_ns"), by_rank[found.rank]["C_ns"])
            assert close(in_ns(found, "f_total_ns"), by_rank[found.rank]["F_ns"])
            assert found.bound == pytest.approx(by_rank[found.rank]["bound"], rel=0.001, abs=1e-6)
            for key in ("estimate", "under_attention"):
                assert getattr(found, key) == pytest.approx(by_rank[found.rank][key], rel=0.001, abs=1e-6)
            assert (found.achievement or 0.0) <= 1
            assert found.measured == pytest.approx(one["masking"]["measured"], rel=0.001, abs=1e-6)
            assert close(in_ns(found, "exposed_ns"), one["step"]["exposed_ns"])


WRONG = {"alltoallv": ["equal all-to-all"], "leaked_transforms": ["streams"], "inactive_ulysses": ["usp2"]}


def test_the_proof_of_effect_fails_where_the_form_is_not_in_effect_and_only_there(case):
    name, capture, truth = case
    effect = check_effect(capture, parse_form(truth["form"]), layers=LAYERS)
    assert [check.name for check in effect.failures] == WRONG.get(name, [])


def test_only_the_straggler_is_called_one(case):
    name, capture, _ = case
    found = [finding.ranks for finding in check_stragglers(decompose(capture))]
    if name == "straggler":
        assert found == [(2,)]
    elif name != "pipeline":  # there a stage's ranks do work longer than the other's
        assert found == []


@pytest.fixture(scope="module", params=[("nccl", name) for name in NAMES] + [("gloo", "unmasked"), ("gloo", "masked")])
def trace(request, tmp_path_factory) -> tuple[str, str, Capture, dict[str, Any]]:
    backend, name = request.param
    timeline, truth = case_of(name)
    folder = tmp_path_factory.mktemp("trace")
    write_kineto(timeline, folder, backend=backend)
    return backend, name, load_capture(folder), truth


def test_the_same_step_from_a_torch_trace(trace):
    _, _, capture, truth = trace
    steps_agree(decompose(capture), truth)


def test_the_same_collectives_from_a_torch_trace(trace):
    backend, _, capture, truth = trace
    names = {"batchSendRecv": "sendRecv"}
    for mine, one in zip(collectives(capture).ranks, truth["ranks"], strict=True):
        true: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for family in one["families"]:
            gid = str(family["communicator"]) if backend == "nccl" else ""
            entry = true[names.get(family["family"], family["family"]), gid]
            entry[0], entry[1] = entry[0] + family["calls"], entry[1] + family["sum_ns"]
        found = {(row.family, row.communicator): [row.calls, 1e6 * row.sum_ms] for row in mine.families}
        assert found.keys() == true.keys()
        assert all(found[key][0] == true[key][0] and close(found[key][1], true[key][1]) for key in true)


def test_the_same_gaps_from_a_torch_trace(trace):
    _, name, capture, truth = trace
    options = replace(options_of(name, truth), collective=None, group_split=None)
    for mine, one in zip(bubbles(capture, 1, options), truth["ranks"], strict=True):
        for part in ("span_ns", "busy_ns", "gap_ns", "gap_with_collective_ns", "gap_released_ns"):
            assert close(in_ns(mine, part), one["bubbles"][part]), (mine.rank, part)


@pytest.mark.parametrize("fault", ["faithful", "rewritten", "placement", "packing", "missing"])
def test_transport_faults(fault):
    _, truth = case_of(f"transport_{fault}")
    true = truth["audit"]
    audit = reconcile_transport(line for lines in truth["audit_logs"].values() for line in lines)
    assert audit.ok is (fault == "faithful")
    assert {leg.fault for leg in audit.faults} == ({fault} if true["fault"] else set())
    for key in ("legs", "equal", "unequal", "missing", "self_wrong", "rewritten_blocks"):
        assert getattr(audit, key) == true[key], key
    wrong = [
        {"call": leg.call, "chunk": leg.chunk, "src": leg.source, "dst": leg.destination}
        for leg in audit.faults
        if leg.fault != "missing"
    ]
    assert wrong == true["wrong_legs"]
