"""Collectives by family and communicator; what shares a stream with them."""

from __future__ import annotations

import pytest
from attribution_tables import capture_of, collective, compute

from anchormatrix.attribution.collectives import (
    check_streams,
    collectives,
    concurrency,
    reconcile,
)
from anchormatrix.records.attribution import Family, Overlap, Stream


def families(rows: list[dict[str, object]], **options: int) -> list[tuple[int, Family]]:
    found = collectives(capture_of(rows), **options)
    return [(one.rank, family) for one in found.ranks for family in one.families]


def test_calls_are_grouped_by_family_and_communicator_on_every_rank():
    rows = [
        collective(0, 10),
        collective(10, 14),
        collective(20, 21, communicator="503"),
        collective(30, 35, "allGather"),
        collective(0, 7, rank=1),
    ]
    found = families(rows, layers=2)
    assert [(rank, f.family, f.communicator, f.calls, f.calls_per_layer, f.sum_ms) for rank, f in found] == [
        (0, "alltoall", "445", 2, 1.0, 0.014),
        (0, "allGather", "445", 1, 0.5, 0.005),
        (0, "alltoall", "503", 1, 0.5, 0.001),
        (1, "alltoall", "445", 1, 0.5, 0.007),
    ]
    _, first = found[0]
    assert (first.mean_ms, first.median_ms, first.max_ms, first.union_ms) == (0.007, 0.007, 0.01, 0.014)


def test_a_kernel_without_communicator_inside_a_call_of_its_family_is_that_call():
    rows = [collective(0, 100), collective(5, 95, communicator=""), collective(200, 290, communicator="")]
    assert [(f.communicator, f.calls, f.sum_ms) for _, f in families(rows)] == [("445", 1, 0.1), ("", 1, 0.09)]
    rows = [collective(0, 100), collective(50, 60), collective(70, 95, communicator="")]
    assert [(f.communicator, f.calls) for _, f in families(rows)] == [("445", 2)]
    other = [collective(0, 100, "allGather"), collective(5, 95, communicator="")]
    assert [f.family for _, f in families(other)] == ["allGather", "alltoall"]


def test_exposed_time_of_a_family_lies_beside_no_compute():
    ((_, found),) = families([collective(0, 10), collective(10, 14), compute(6, 12)])
    assert (found.union_ms, found.exposed_ms) == (0.014, 0.008)


def test_calls_per_layer_count_over_all_captured_steps():
    rows = [collective(0, 1), collective(1, 2), collective(5, 6, step=2), collective(6, 7, step=2)]
    assert [one.calls_per_layer for _, one in families(rows, layers=2)] == [1.0]
    assert [one.calls_per_layer for _, one in families(rows, layers=2, steps=1)] == [2.0]


def test_union_over_sum_tells_transfer_from_concurrency():
    serial, doubled = [collective(0, 10), collective(10, 20)], [collective(0, 10), collective(5, 15)]
    rows = serial + [row | {"rank": 1} for row in doubled]
    assert [one.union_over_sum for _, one in families(rows)] == [1.0, 0.75]
    (note,) = concurrency(collectives(capture_of(rows)))
    assert note.ranks == (1,)
    assert "occupancy" in note.text


def test_zero_duration_calls_are_counted_and_take_no_time():
    ((_, found),) = families([collective(5, 5), collective(6, 6)])
    assert (found.calls, found.sum_ms, found.union_ms, found.union_over_sum) == (2, 0, 0, None)


def test_overlap_of_families_is_the_intersection_over_the_smaller_union():
    rows = [collective(0, 10), collective(8, 12, "allGather"), collective(30, 34, communicator="503")]
    (found,) = collectives(capture_of(rows)).ranks
    assert found.overlap == (Overlap("allGather", "alltoall", 0.5), Overlap("alltoall:445", "alltoall:503", 0.0))


def test_a_remainder_says_that_another_collective_is_mixed_in():
    rows = [collective(k, k + 1, "allGather") for k in range(17)]
    (found,) = reconcile(collectives(capture_of(rows)), layers=6)
    assert "17 calls are no multiple of 6 layers × 1 steps; 5 are left over" in found.text


@pytest.mark.parametrize("calls", [1, 12, 24])
def test_whole_multiples_and_single_calls_outside_the_layers_reconcile(calls):
    rows = [collective(k, k + 1) for k in range(calls)]
    assert reconcile(collectives(capture_of(rows)), layers=6) == []


def test_streams_say_what_runs_on_them():
    rows = [compute(0, 10), compute(10, 12), collective(0, 5, core="ai_cpu")]
    (found,) = collectives(capture_of(rows)).ranks
    assert found.streams == (Stream("16", "compute", 2, 0.012), Stream("31", "ai_cpu", 1, 0.005))


def test_compute_on_a_stream_of_collectives_has_leaked_there():
    rows = [compute(0, 100), collective(0, 5), compute(5, 8, "Transpose", stream="31")]
    (found,) = check_streams(capture_of(rows))
    assert found.text == "stream 31 carries collectives and 1 compute kernels (0.003 ms)"


def test_compute_on_a_second_stream_is_asked_about_where_collectives_show_none():
    rows = [compute(0, 100), collective(0, 5, stream="N/A"), compute(5, 8, "Transpose", stream="31")]
    (found,) = check_streams(capture_of(rows))
    assert found.text.endswith("beside the compute stream 16: is it the masking stream?")


@pytest.mark.parametrize("stream", ["16", "31", "N/A"])
def test_collectives_alone_on_a_stream_or_on_the_compute_stream_are_in_order(stream):
    assert check_streams(capture_of([compute(0, 100), collective(0, 5, stream=stream)])) == []
