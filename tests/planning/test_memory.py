"""The memory gate: what a form needs per card, and what is tried before it is dropped."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anchormatrix.planning.memory import MemoryLimits, memory_of, plan_memory
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.things import ModelSettings

# 10 layers, hidden width 1000, 1 GB of weights per layer; one shard of 1000 tokens × 1000 values × 2 bytes is 2 MB.
MODEL = ModelSettings(
    layers=10,
    heads=10,
    kv_heads=10,
    head_dim=100,
    sequence_tokens=1000,
    guidance_branches=2,
    weights_gb=10,
    text_encoder_gb=8,
    vae_gb=1,
    activation_gb=4,
)


def forms(*names):
    return [parse_form(name) for name in names]


def test_weights_are_split_by_tensor_and_pipeline_only():
    two_ways = memory_of(parse_form("tp2-usp1"), MODEL)
    assert (two_ways.weights_gb, two_ways.activation_gb, two_ways.other_gb) == (5, 4, 8 / 2 + 1)
    ulysses = memory_of(parse_form("tp1-usp2"), MODEL)
    assert (ulysses.weights_gb, ulysses.activation_gb) == (10, 2)
    assert ulysses.buffers_gb == pytest.approx(4 * 0.001)  # Q, K, V and O of 500 tokens
    assert ulysses.total_gb == pytest.approx(10 + 2 + 0.004 + 5)


def test_all_gather_holds_the_whole_k_and_v_and_grouped_query_shrinks_it():
    assert memory_of(parse_form("tp1-usp1-ag2"), MODEL).buffers_gb == pytest.approx(2 * 0.002)
    gqa = replace(MODEL, kv_heads=2)
    assert memory_of(parse_form("tp1-usp1-ag2"), gqa).buffers_gb == pytest.approx(2 * 0.002 / 5)


def test_layerwise_offload_keeps_two_layers_and_differs_in_host_memory():
    plain = memory_of(parse_form("tp1-usp2+layerwise-offload"), MODEL)
    shared = memory_of(parse_form("tp1-usp2+distributed-layerwise-offload"), MODEL)
    assert plain.weights_gb == shared.weights_gb == 2
    assert (plain.host_gb, shared.host_gb) == (20, 10)


def test_component_offload_keeps_one_component_at_a_time():
    assert memory_of(parse_form("tp1-usp2+cpu-offload"), MODEL).other_gb == 0


def test_a_form_that_fits_is_left_alone():
    plan = plan_memory(forms("tp1-usp2"), MODEL, MemoryLimits(card_gb=32))
    assert [form.name for form in plan.forms] == ["tp1-usp2"]
    assert plan.unlocked == plan.dropped == ()


def test_the_offload_is_tried_in_the_configured_order():
    """The distributed kind only where ranks share a sequence: else it would be the plain one under another name."""
    limits = MemoryLimits(card_gb=12.9, reserve_gb=0.9)
    plan = plan_memory(forms("tp1-usp2", "tp2-usp1"), MODEL, limits)
    assert [form.name for form in plan.forms] == [
        "tp1-usp2+distributed-layerwise-offload",
        "tp2-usp1+layerwise-offload",
    ]
    assert next((a.name, b.name) for a, b in plan.unlocked) == ("tp1-usp2", "tp1-usp2+distributed-layerwise-offload")
    plain_first = MemoryLimits(16, 4, offload_order=("layerwise-offload", "distributed-layerwise-offload"))
    assert plan_memory(forms("tp1-usp2"), MODEL, plain_first).forms[0].offload == "layerwise-offload"


def test_host_memory_excludes_plain_layerwise_before_the_distributed_kind():
    limits = MemoryLimits(16, 4, host_gb=15, offload_order=("layerwise-offload", "distributed-layerwise-offload"))
    assert plan_memory(forms("tp1-usp2"), MODEL, limits).forms[0].offload == "distributed-layerwise-offload"


def test_a_form_that_fits_only_without_the_reserve_is_measured_all_the_same():
    """17 GB on a card of 19: with 4 GB left free it would not fit, and no offload is allowed."""
    tight = plan_memory(forms("tp1-usp2"), MODEL, MemoryLimits(card_gb=19, reserve_gb=4, offload_order=()))
    assert [form.name for form in tight.forms] == ["tp1-usp2"]
    both = plan_memory(forms("tp1-usp2"), MODEL, MemoryLimits(card_gb=19, reserve_gb=4))
    assert [form.name for form in both.forms] == ["tp1-usp2", "tp1-usp2+distributed-layerwise-offload"]
    assert both.unlocked == both.dropped == ()
    assert plan_memory(forms("tp1-usp2"), MODEL, MemoryLimits(16.9, 4, offload_order=())).forms == ()


def test_an_offload_that_is_not_needed_is_measured_beside_the_plain_form():
    """Only the form without it shows whether weights left the card. It is not added where it would not fit."""
    asked = forms("tp2-usp1", "tp1-usp2+layerwise-offload")
    wide = plan_memory(asked, MODEL, MemoryLimits(card_gb=32))
    assert [form.name for form in wide.forms] == ["tp2-usp1", "tp1-usp2", "tp1-usp2+layerwise-offload"]
    twice = plan_memory(forms("tp1-usp2", "tp1-usp2+cpu-offload"), MODEL, MemoryLimits(card_gb=32))
    assert [form.name for form in twice.forms] == ["tp1-usp2", "tp1-usp2+cpu-offload"]
    narrow = plan_memory(asked[1:], MODEL, MemoryLimits(card_gb=16.9))
    assert [form.name for form in narrow.forms] == ["tp1-usp2+layerwise-offload"]


def test_a_dropped_form_says_the_numbers_and_what_was_tried():
    plan = plan_memory(forms("tp1-usp2"), MODEL, MemoryLimits(card_gb=7, offload_order=("layerwise-offload",)))
    (dropped,) = plan.dropped
    assert dropped.reason == (
        "needs 17.0 GB per card (weights 10.0, activations 2.0, buffers 0.0, other 5.0); 7.0 GB are usable; "
        "also with layerwise-offload"
    )


def test_a_memory_saving_change_makes_new_forms_appear():
    limits = MemoryLimits(card_gb=13, offload_order=())
    quantized = replace(MODEL, weights_gb=4)
    wanted = forms("tp1-usp2", "tp2-usp1")
    assert plan_memory(wanted, MODEL, limits).forms == ()
    assert [form.name for form in plan_memory(wanted, quantized, limits).forms] == ["tp1-usp2", "tp2-usp1"]


def test_every_transformer_of_a_pipeline_is_held_though_one_runs_at_a_time():
    two = replace(MODEL, transformers=2)
    assert memory_of(parse_form("tp2-usp1"), two).weights_gb == 2 * 5
    layers = memory_of(parse_form("tp1-usp2+layerwise-offload"), two)
    assert (layers.weights_gb, layers.host_gb) == (20 * 2 / 10, 20 * 2)
    assert memory_of(parse_form("tp1-usp2+cpu-offload"), two).weights_gb == 10
