"""The virtual host's timeline: one denoise step of a form on actual cards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from virtualhost.host.model import Behaviour, DiT, Fabric, HostModel, LinkClass, Rates, StepRule
from virtualhost.host.split import Split, exchanged_heads, mask_chunks, memory, refusal, stage_layers, step_factor
from virtualhost.step.simulator import Simulator
from virtualhost.step.steptable import captured, step_figures
from virtualhost.step.timeline import SplitError, StepTimeline, collective_ns, simulate_step

PAIR, QUAD, ALL = (0, 1), (0, 1, 2, 3), tuple(range(8))
QUADS = ((0, 1, 2, 3), (4, 5, 6, 7))
HOST = HostModel()
SMALL = HostModel(dit=DiT(layers=4, guidance_branches=1, sequence_tokens=8192))
FORMS = [
    (Split(), (0,)),
    (Split(usp=4), QUAD),
    (Split(tp=2, usp=2), QUAD),
    (Split(usp=4, mask_chunks=5), QUAD),
    (Split(usp=2, ag=2, mask_chunks=4), QUAD),
    (Split(ring=4), QUAD),
    (Split(pp=2, usp=2), QUAD),
    (Split(cfg=2, usp=4), ALL),
    (Split(tp=2, usp=4), ALL),
    (Split(usp=4, offload="distributed-layerwise-offload"), QUAD),
    (Split(ag=2, usp=2, offload="layerwise-offload"), QUAD),
]


def calls(step: StepTimeline, rank: int, family: str) -> int:
    return sum(kernel.op.family == family for kernel in step.kernels(rank))


def milliseconds(step: StepTimeline) -> float:
    return step.step_ns / 1e6


def with_links(fast_gbs: float, slow_gbs: float) -> HostModel:
    fabric = Fabric.of_domains(QUADS, fast=LinkClass("UB", fast_gbs, 20.0), slow=LinkClass("SYS", slow_gbs, 45.0))
    return replace(HOST, fabric=fabric)


def test_attention_takes_its_floating_point_operations() -> None:
    host = replace(SMALL, rates=Rates(attention_tflops=100.0))
    (first, *_) = (k for k in simulate_step(host, Split(usp=4), QUAD).kernels(0) if k.op.attention)
    assert first.dur_ns == round(4 * 8192 * 8192 * 10 * 128 / 100e3)  # ten local heads over the whole sequence


def test_a_collective_takes_t0_and_its_bytes_over_the_slowest_class() -> None:
    fabric = Fabric.of_domains(QUADS, fast=LinkClass("UB", 100.0, 20.0), slow=LinkClass("SYS", 10.0, 50.0))
    assert collective_ns(fabric, "alltoall", 400_000, QUAD) == 20_000 + 300_000 // 100
    assert collective_ns(fabric, "allgather", 100_000, QUAD) == 20_000 + 300_000 // 100
    assert collective_ns(fabric, "allreduce", 400_000, QUAD) == 20_000 + 600_000 // 100
    # 7/8 of the tensor leave the card, 4 of 7 parts over the slow links
    assert collective_ns(fabric, "alltoall", 800_000, ALL) == 50_000 + 400_000 // 10
    assert collective_ns(fabric, "alltoall", 400_000, QUAD, concurrency=2) == 2 * 23_000


def test_a_healthy_quad_prefers_ulysses_by_about_a_tenth() -> None:
    usp, both, tp = (
        simulate_step(HOST, split, QUAD).step_ns for split in (Split(usp=4), Split(tp=2, usp=2), Split(tp=4))
    )
    assert 4.0e9 < usp < 6.0e9
    assert 1.08 < both / usp < 1.13
    assert tp > both


def test_the_order_of_forms_depends_on_the_links() -> None:
    forms = Split(usp=8), Split(usp=4, cfg=2), Split(tp=2, usp=4)
    slow = [simulate_step(with_links(80.0, 4.0), form, ALL).step_ns for form in forms]
    assert slow[0] / slow[1] > 1.4  # Ulysses over slow links pays, one guidance branch per domain does not
    same_plumbing = with_links(8000.0, 8000.0)
    quick = [simulate_step(same_plumbing, form, ALL).step_ns for form in forms]
    assert quick[2] / quick[0] < 1.08 < slow[0] / slow[1]


def test_a_group_across_domains_is_slower_than_one_inside() -> None:
    inside, across = (simulate_step(HOST, Split(usp=4), cards).step_ns for cards in (QUAD, (0, 1, 4, 5)))
    assert across > 1.03 * inside


@pytest.mark.parametrize(("split", "cards"), FORMS, ids=lambda value: getattr(value, "name", ""))
def test_streams_run_one_kernel_at_a_time_and_calls_end_together(split: Split, cards: tuple[int, ...]) -> None:
    step = simulate_step(SMALL if split.cfg == 1 else replace(SMALL, dit=DiT(layers=4)), split, cards)
    ends: dict[tuple[int, int], set[int]] = {}
    for rank in step.ranks:
        kernels = step.kernels(rank)
        assert kernels[0].start_ns == 0
        assert max(kernel.end_ns for kernel in kernels) == step.stage_ns[rank]
        for stream in {kernel.op.stream for kernel in kernels}:
            mine = [kernel for kernel in kernels if kernel.op.stream == stream]
            assert all(a.end_ns <= b.start_ns for a, b in pairwise(mine))
            for kernel in mine:
                if kernel.op.family not in ("", "send", "receive"):
                    group = step.group(rank, stream)
                    assert rank in group.ranks
                    ends.setdefault((group.gid, kernel.call), set()).add(kernel.end_ns)
    assert all(len(found) == 1 for found in ends.values())


@pytest.mark.parametrize(("split", "cards"), FORMS, ids=lambda value: getattr(value, "name", ""))
def test_repeating_a_layer_is_exact(split: Split, cards: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(HOST, dit=DiT(layers=8), behaviour=Behaviour(slow_cards=((cards[-1], 1.07),)))
    repeated = simulate_step(model, split, cards)
    honest, number = Simulator.snapshot, iter(range(1_000_000))

    def never_the_same(sim: Simulator, pending: list[int] | None) -> tuple[int, tuple[int, ...]]:
        base, state = honest(sim, pending)
        return base, (*state, next(number))

    monkeypatch.setattr(Simulator, "snapshot", never_the_same)
    simulate_step.cache_clear()
    simulated = simulate_step(model, split, cards)
    simulate_step.cache_clear()
    assert len(simulated.segments) >= len(repeated.segments)
    assert [simulated.kernels(rank) for rank in simulated.ranks] == [repeated.kernels(rank) for rank in repeated.ranks]


def test_ulysses_makes_four_alltoalls_per_layer_and_masking_n_times_as_many() -> None:
    assert calls(simulate_step(SMALL, Split(usp=4), QUAD), 0, "alltoall") == 4 * 4
    assert calls(simulate_step(SMALL, Split(usp=4, mask_chunks=5), QUAD), 3, "alltoall") == 5 * 4 * 4
    assert calls(simulate_step(SMALL, Split(tp=2, usp=2), QUAD), 1, "allReduce") == 3 * 4


def test_masking_hides_communication_and_issue_order_exposes_the_reverse_part() -> None:
    slow = replace(SMALL, fabric=Fabric.of_domains(QUADS, fast=LinkClass("UB", 20.0, 20.0)))
    late = replace(slow, behaviour=Behaviour(reverse_after_forward=True))
    plain = step_figures(simulate_step(slow, Split(usp=4), QUAD), 0)
    masked = step_figures(simulate_step(slow, Split(usp=4, mask_chunks=5), QUAD), 0)
    exposed = step_figures(simulate_step(late, Split(usp=4, mask_chunks=5), QUAD), 0)
    assert plain.overlapped_ns == 0
    assert masked.exposed_ns < exposed.exposed_ns < plain.exposed_ns


def test_grouped_heads_shrink_keys_and_values_only() -> None:
    quarter = replace(SMALL, dit=replace(SMALL.dit, kv_heads=10), fabric=with_links(1.0, 1.0).fabric)
    found = [k.dur_ns for k in simulate_step(quarter, Split(usp=2), PAIR).kernels(0) if k.op.family == "alltoall"][:4]
    local = 4096 * 40 * 128 * 2 // 2
    assert found == [20_000 + local, 20_000 + local // 4, 20_000 + local // 4, 20_000 + local]


def test_a_straggler_keeps_the_others_waiting_inside_their_collectives() -> None:
    slow = replace(SMALL, behaviour=Behaviour(slow_cards=((2, 1.3),)))
    healthy, waiting = simulate_step(SMALL, Split(usp=4), QUAD), simulate_step(slow, Split(usp=4), QUAD)
    assert waiting.step_ns > 1.2 * healthy.step_ns
    assert step_figures(waiting, 0).exposed_ns > 2 * step_figures(healthy, 0).exposed_ns
    assert step_figures(waiting, 2).exposed_ns == step_figures(healthy, 2).exposed_ns


def test_inactive_ulysses_computes_everything_everywhere() -> None:
    model = replace(SMALL, behaviour=Behaviour(inactive_ulysses=True))
    step = simulate_step(model, Split(usp=2), PAIR)
    assert calls(step, 0, "alltoall") == 0
    assert calls(step, 0, "allGather") == 1
    assert step.step_ns > 0.99 * simulate_step(SMALL, Split(), (0,)).step_ns


def test_the_unequal_path_has_another_family_and_takes_longer() -> None:
    model = replace(SMALL, behaviour=Behaviour(uneven_alltoall=0.25))
    uneven = simulate_step(model, Split(usp=4), QUAD)
    assert (calls(uneven, 0, "alltoall"), calls(uneven, 0, "alltoallv")) == (0, 16)
    assert uneven.step_ns > simulate_step(SMALL, Split(usp=4), QUAD).step_ns


def test_offloaded_weights_are_gathered_in_the_group_but_for_the_first_layer() -> None:
    plain = simulate_step(SMALL, Split(ag=4), QUAD)
    offloaded = simulate_step(SMALL, Split(ag=4, offload="distributed-layerwise-offload"), QUAD)
    assert calls(plain, 0, "allGather") == 2 * 4 + 1
    assert calls(offloaded, 0, "allGather") == 2 * 4 + 1 + 3


def test_a_pipeline_hands_over_and_works_on_both_branches_at_once() -> None:
    model = replace(SMALL, dit=DiT(layers=4, sequence_tokens=8192, guidance_branches=2))
    step = simulate_step(model, Split(pp=2), PAIR)
    assert (calls(step, 0, "send"), calls(step, 1, "receive")) == (2, 2)
    assert step.step_ns < 0.85 * simulate_step(model, Split(), (0,)).step_ns


def test_scaling_multiplies_and_capturing_keeps_exposed_seconds() -> None:
    step = simulate_step(SMALL, Split(usp=4, mask_chunks=2), QUAD)
    noisy = step.scaled(1.013)
    assert noisy.step_ns == round(step.step_ns * 1.013)
    seen = captured(step, 1.4)
    for rank in step.ranks:
        before, after = step_figures(step, rank), step_figures(seen, rank)
        assert after.exposed_ns == before.exposed_ns
        assert after.stage_ns == seen.stage_ns[rank]
        assert after.computing_ns == pytest.approx(1.4 * before.computing_ns, rel=1e-6)
        assert after.free_ns == pytest.approx(1.4 * before.free_ns, rel=1e-3)


@pytest.mark.parametrize(
    ("split", "text"),
    [
        (Split(tp=3), "AssertionError: 40 is not divisible by 3"),
        (Split(usp=16), "query_head_cnt=40, ulysses_degree=16. Try ulysses_degree in [1, 2, 4, 5, 8, 10, 20, 40]"),
        (Split(tp=8, usp=2), "query_head_cnt=5, ulysses_degree=2"),
        (Split(ring=16), "Sequence length (32760) is not divisible by SP world size (16)"),
        (Split(pp=41), "40 layers are fewer"),
        (Split(offload="disk"), "unknown offload"),
    ],
)
def test_a_form_the_engine_cannot_start_is_refused(split: Split, text: str) -> None:
    assert text in (refusal(DiT(), split) or "")
    with pytest.raises(SplitError, match=r"divisible|branches|fewer|unknown"):
        simulate_step(HOST, split, tuple(range(split.world)))


def test_all_gather_kv_is_served_alone_but_can_be_pictured_beside_ulysses() -> None:
    both = Split(usp=2, ag=2)
    assert "mutually exclusive with Ulysses/Ring" in (refusal(DiT(), both) or "")
    assert simulate_step(SMALL, both, QUAD).step_ns > 0


def test_grouped_query_heads_are_not_repeated_over_ulysses_ranks_but_can_be_padded() -> None:
    few = replace(DiT(), heads=28, kv_heads=7)
    assert "key_head_cnt=7, ulysses_degree=2" in (refusal(few, Split(usp=2)) or "")
    padded = Split(usp=2, pad_heads=True)
    assert (refusal(few, padded), exchanged_heads(few, padded)) == (None, (32, 8))


def test_left_over_layers_go_to_the_stages_before_the_last() -> None:
    assert stage_layers(replace(DiT(), layers=40), Split(pp=7)) == (5, 6, 6, 6, 6, 6, 5)


def test_a_layer_with_parallel_branches_is_summed_once_over_tensor_ranks() -> None:
    side = replace(HOST, dit=replace(HOST.dit, parallel_block=True))
    counts = [calls(simulate_step(host, Split(tp=2), (0, 1)), 0, "allReduce") for host in (HOST, side)]
    assert counts == [3 * 40 * 2, 2 * 40 * 2]  # cross-attention has its own; two guidance branches


def test_a_form_needs_its_number_of_cards() -> None:
    with pytest.raises(SplitError, match="needs 4 cards and 2 are visible"):
        simulate_step(HOST, Split(usp=4), PAIR)


def test_chunks_divide_the_local_heads() -> None:
    assert mask_chunks(DiT(), Split(usp=4, mask_chunks=4)) == 2  # ten local heads
    assert mask_chunks(DiT(), Split(usp=8, mask_chunks=9)) == 5
    assert mask_chunks(DiT(), Split(tp=4, mask_chunks=4)) == 1  # nothing to hide


def test_ranks_are_numbered_with_tensor_parallelism_fastest() -> None:
    split = Split(tp=2, usp=2, cfg=2)
    assert split.groups("tp") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert split.groups("usp") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert split.groups("cfg") == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_memory_follows_the_split_and_offload_moves_weights_to_the_host() -> None:
    plain, halved = memory(DiT(), Split(usp=4)), memory(DiT(), Split(tp=2, usp=2))
    assert (plain.weights_gb, halved.weights_gb, plain.activations_gb) == (28.0, 14.0, 3.5)
    layerwise = memory(DiT(), Split(usp=4, offload="layerwise-offload"))
    shared = memory(DiT(), Split(usp=4, offload="distributed-layerwise-offload"))
    assert layerwise.weights_gb == shared.weights_gb == pytest.approx(1.4)  # the layer in use and the next one
    assert (layerwise.host_gb, shared.host_gb) == (28.0, 7.0)
    assert memory(DiT(), Split(usp=4, offload="cpu-offload")).encoders_gb == 0


def test_a_step_rule_applies_from_its_step_on_to_the_forms_it_names() -> None:
    rules = (StepRule(1.5, first_step=4, forms=("tp1-usp4",)), StepRule(2.0, min_steps=8))
    behaviour = Behaviour(step_rules=rules)
    assert [step_factor(behaviour, Split(usp=4), index, 10) for index in (3, 4)] == [2.0, 3.0]
    assert step_factor(behaviour, Split(tp=2, usp=2), 4, 6) == 1.0
