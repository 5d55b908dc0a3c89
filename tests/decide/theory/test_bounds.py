"""The byte bound: two columns per rank and layer, and times from a size sweep."""

from __future__ import annotations

import pytest
from contracts import contract_on
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from anchormatrix.decide.theory.bounds import byte_bound, byte_rows
from anchormatrix.measure.bandwidth.curve import Curves, interpolate, wire_bytes
from anchormatrix.planning.collective_calls import collectives, concurrency, rank_groups
from anchormatrix.records.bandwidth import SweepPoint
from anchormatrix.records.form import parse_form
from anchormatrix.records.host import Topology
from anchormatrix.records.settings.things import ModelSettings

# 8 heads of 100 values, 1000 tokens, 2 bytes: the whole hidden tensor is 1.6 MB.
MHA = ModelSettings(
    layers=10,
    heads=8,
    kv_heads=8,
    head_dim=100,
    sequence_tokens=1000,
    guidance_branches=2,
    weights_gb=1,
)
GQA = replace(MHA, kv_heads=2)
CARDS = tuple(range(8))
LINKS = tuple(tuple("X" if a == b else "UB" if a // 4 == b // 4 else "SYS" for b in CARDS) for a in CARDS)
HOST = Topology(CARDS, LINKS)


def contract(cards=CARDS):
    links = tuple(tuple(HOST.link(a, b) if a != b else "X" for b in cards) for a in cards)
    return contract_on(cards, links, tiers={"few": 4, "anchor": 10})


def totals(form, model=MHA, cards=CARDS):
    rows = [row for row in byte_rows(parse_form(form), model, cards, HOST) if row.rank == 0]
    return sum(row.same_domain_bytes for row in rows), sum(row.cross_domain_bytes for row in rows)


def test_ulysses_sends_the_share_of_its_peers_of_four_tensors():
    # 8 ranks: local tensor 0.2 MB, 1/8 of it to each of 3 peers inside and 4 across; Q, K, V and output.
    assert totals("tp1-usp8") == pytest.approx((4 * 200e3 * 3 / 8, 4 * 200e3 * 4 / 8))


def test_tensor_parallel_reduces_the_hidden_tensor_twice_per_layer():
    # all-reduce over 2 ranks: 2 × (w−1)/w of 1.6 MB, twice
    assert totals("tp2-usp1", cards=(0, 1)) == pytest.approx((2 * 1.6e6, 0))
    assert totals("tp2-usp1", cards=(3, 4)) == pytest.approx((0, 2 * 1.6e6))


def test_all_gather_sends_its_own_shard_to_every_peer():
    # K and V shards of 0.2 MB each to 3 peers inside and 4 across
    assert totals("tp1-usp1-ag8") == pytest.approx((2 * 200e3 * 3, 2 * 200e3 * 4))


def test_grouped_query_shrinks_all_gather_by_the_kv_ratio_and_ulysses_only_in_part():
    assert totals("tp1-usp1-ag8", GQA) == pytest.approx(tuple(x / 4 for x in totals("tp1-usp1-ag8")))
    q_and_out = 2 * 200e3
    assert sum(totals("tp1-usp2", GQA, (0, 1))) == pytest.approx((2 * 800e3 + 2 * 800e3 / 4) / 2)
    # fewer KV heads than ranks are repeated: 8 ranks exchange 8 heads, as without grouped queries
    assert sum(totals("tp1-usp8", GQA)) == pytest.approx((q_and_out + 2 * 200e3) * 7 / 8)


def test_ring_passes_its_blocks_to_the_next_rank_only():
    rows = byte_rows(parse_form("tp1-usp1-ring4"), MHA, (2, 3, 4, 5), HOST)
    sent = {row.card: (row.same_domain_bytes, row.cross_domain_bytes) for row in rows}
    each = 2 * 3 * 400e3
    assert sent == {2: (each, 0), 3: (0, each), 4: (each, 0), 5: (0, each)}


def test_a_composite_form_moves_its_bytes_across_less_but_not_fewer_of_them():
    (same, cross), (pure_same, pure_cross) = totals("tp1-usp4-ag2"), totals("tp1-usp8")
    assert cross == pytest.approx(pure_cross)  # without grouped queries K and V cross whole, as Q, K, V and O did
    assert same > pure_same
    # K and V of 2 of 8 heads: Ulysses over 8 ranks must repeat them, all-gather-KV need not
    assert totals("tp1-usp4-ag2", GQA)[1] == pytest.approx(totals("tp1-usp8", GQA)[1] / 2)


@pytest.mark.parametrize(("figures", "sums"), [({}, 2), ({"cross_attention": True}, 3), ({"parallel_block": True}, 1)])
def test_a_layer_is_summed_over_tensor_ranks_as_often_as_its_structure_says(figures, sums):
    (call,) = collectives(parse_form("tp2-usp1"), replace(MHA, **figures))
    assert (call.kind, call.calls_per_layer) == ("all_reduce", sums)


def test_masking_sends_the_same_bytes_in_more_calls():
    plain, masked = collectives(parse_form("tp1-usp4"), MHA), collectives(parse_form("tp1-usp4+mask2"), MHA)
    assert sum(c.calls_per_layer for c in masked) == 2 * sum(c.calls_per_layer for c in plain)
    assert [c.payload_bytes * c.calls_per_layer for c in masked] == [c.payload_bytes * c.calls_per_layer for c in plain]


def test_distributed_offload_gathers_the_layers_weights():
    model = ModelSettings(
        layers=10,
        heads=8,
        kv_heads=8,
        head_dim=100,
        sequence_tokens=1000,
        weights_gb=1,
    )
    (weights,) = [
        c for c in collectives(parse_form("tp1-usp2+distributed-layerwise-offload"), model) if "weights" in c.carries
    ]
    assert (weights.kind, weights.payload_bytes) == ("all_gather", 1e9 / 10 / 2)


def test_tensor_ranks_are_numbered_fastest():
    form = parse_form("tp2-usp2-cfg2")
    assert rank_groups(form, "tp") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert rank_groups(form, "usp") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert rank_groups(form, "cfg") == ((0, 4), (1, 5), (2, 6), (3, 7))


def sweep(kind="all_to_all", links="UB", ranks=4, concurrency=1, t0=50.0, gb_s=40.0):
    points = [
        SweepPoint(kind, links, ranks, size, concurrency, t0 + size / gb_s / 1e3, 1.0) for size in (10**5, 10**6, 10**7)
    ]
    return Curves(tuple(points))


def test_time_is_fixed_cost_plus_bytes_over_bandwidth():
    one = sweep().estimate("all_to_all", "UB", 4, 400_000, 1)
    assert one.time_us == pytest.approx(50 + 400_000 / 40e3)
    bound = byte_bound(parse_form("tp1-usp4"), MHA, contract((0, 1, 2, 3)), sweep())
    assert bound.layer_us == pytest.approx(4 * (50 + 10))
    assert bound.step_ms == pytest.approx(4 * 60 * 10 * 2 / 1e3)  # 10 layers, both guidance branches


def test_cfg_ranks_share_the_forwards():
    assert byte_bound(parse_form("tp1-usp4-cfg2"), MHA, contract(), sweep()).forwards_per_step == 1


def test_communicators_run_at_once_only_on_streams_of_their_own():
    names = ("tp2-usp2", "tp1-usp4+mask2", "tp1-usp2-ag2+mask2", "tp1-usp4+distributed-layerwise-offload")
    assert [concurrency(parse_form(name)) for name in names] == [1, 1, 2, 2]


def test_links_that_were_not_swept_stay_unknown():
    bound = byte_bound(parse_form("tp1-usp8"), MHA, contract(), sweep())
    assert bound.step_ms is None
    assert bound.unknown[0] == "all_to_all was not swept over SYS+UB links"
    assert bound.worst == pytest.approx(totals("tp1-usp8"))


def test_another_rank_count_or_concurrency_is_used_and_said():
    basis = sweep().estimate("all_to_all", "UB", 2, 1000, 2).basis
    assert "scaled by wire bytes from 4 ranks" in basis
    assert "measured with 1 communicators at once, the form runs 2" in basis


def test_wire_bytes():
    assert [wire_bytes(kind, 4, 100) for kind in ("all_to_all", "all_gather", "all_reduce", "send_recv")] == [
        75,
        300,
        150,
        100,
    ]


@given(st.floats(0, 1e4), st.floats(1e-3, 1e3), st.floats(1, 1e9))
def test_interpolation_reproduces_the_linear_law_everywhere(t0, us_per_kb, size):
    curve = [(x, t0 + x * us_per_kb / 1e3) for x in (1e6, 4e6, 16e6)]
    assert interpolate(curve, size) == pytest.approx(t0 + size * us_per_kb / 1e3, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6), st.floats(1, 1e10))
def test_interpolation_is_never_negative(times, size):
    assert interpolate([(float(4**i * 1000), t) for i, t in enumerate(times)], size) >= 0
