"""Which forms a model allows, and why each other one is excluded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.base import EngineLimits, EngineRule
from anchormatrix.engines.find import open_engine
from anchormatrix.planning.candidates import (
    check,
    enumerate_forms,
    explicit_forms,
    mask_chunks,
    pair_statement,
    same_size_pair,
    splits,
)
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.things import ModelSettings
from virtualhost.host.model import DiT
from virtualhost.host.split import refusal
from virtualhost.host.strict import build
from virtualhost.server.exchange import parse_split

WAN = ModelSettings(
    layers=40,
    heads=40,
    kv_heads=40,
    head_dim=128,
    ffn_dim=13824,
    sequence_tokens=32760,
    guidance_branches=2,
    weights_gb=1,
)
GQA = ModelSettings(
    layers=30,
    heads=24,
    kv_heads=4,
    head_dim=128,
    sequence_tokens=30720,
    weights_gb=1,
)


def names(forms):
    return [form.name for form in forms]


def reason_of(name, model, **declared):
    broken = check(parse_form(name), model, EngineLimits(**declared))
    return broken.reason if broken else None


def test_two_cards_of_a_plain_model_can_be_split_five_ways():
    found = enumerate_forms(WAN, 2)
    assert names(found.forms) == ["tp1-usp2", "tp1-usp1-cfg2", "tp1-usp1-ag2", "tp1-usp1-ring2", "tp2-usp1"]
    assert [(e.form.name, e.reason, e.source) for e in found.excluded] == [
        ("tp1-usp1-pp2", "the engine offers no pipeline parallelism (pp2)", "engine")
    ]


def test_every_split_of_a_size_is_a_candidate_or_has_a_reason():
    found = enumerate_forms(WAN, 8)
    assert {*found.forms, *(e.form for e in found.excluded)} == set(splits(8))
    assert len(list(splits(8))) == 56
    assert all(form.cards == 8 for form in found.forms)


@pytest.mark.parametrize(
    ("name", "model", "reason"),
    [
        ("tp3-usp1", WAN, "40 heads are not divisible by tp 3"),
        ("tp1-usp16", WAN, "(heads ÷ tp) % usp must be 0: (40 ÷ 1) % 16 = 8"),
        ("tp8-usp2", WAN, "(heads ÷ tp) % usp must be 0: (40 ÷ 8) % 2 = 1"),
        ("tp3-usp1", GQA, "4 KV heads can neither be divided among nor repeated over tp 3"),
        ("tp1-usp6", GQA, "4 KV heads per tensor rank cannot be divided among usp 6"),
        ("tp1-usp8", GQA, "4 KV heads per tensor rank cannot be divided among usp 8"),
        ("tp1-usp1-cfg2", GQA, "CFG parallelism needs guidance with two branches; this workload has one"),
        ("tp1-usp1-cfg4", WAN, "2 guidance branches cannot be shared by cfg 4"),
        ("tp1-usp1-ring16", WAN, "32760 tokens are not divisible by the sequence degree 16"),
        ("tp1-usp1-ring2-ag2", WAN, "ring and all-gather-KV both move K and V; only one of them can be active"),
        ("tp2-usp1+mask2", WAN, "communication masking needs a sequence-parallel collective to mask"),
        ("tp1-usp8+mask2", WAN, "2 chunks do not divide the 5 local heads; the largest that does is 1"),
    ],
)
def test_the_first_broken_rule_is_named_with_its_numbers(name, model, reason):
    assert reason_of(name, model).startswith(reason)


def test_ring_is_excluded_by_attention_masks_unless_the_engine_honours_them():
    masked = replace(WAN, attention_mask=True)
    assert reason_of("tp1-usp1-ring2", masked) == "ring attention does not support attention masks here"
    assert reason_of("tp1-usp1-ring2", masked, ring_with_mask=True) is None


def test_sparse_blocks_must_divide_the_shards_and_exclude_ring():
    sparse = replace(WAN, sequence_tokens=32768, sparse_block=4096)
    assert reason_of("tp1-usp8", sparse) is None
    odd = replace(WAN, sparse_block=128)
    assert reason_of("tp1-usp4", odd) == "S % (sequence degree × block) must be 0: 32760 % (4 × 128) = 504"
    assert "silently not apply" in reason_of("tp1-usp1-ring2", sparse)


def test_grouped_query_heads_are_repeated_over_tensor_ranks_only():
    assert reason_of("tp8-usp1", GQA) is None
    assert reason_of("tp1-usp8", GQA, pads_heads=True) is None


def test_what_an_engine_pads_excludes_nothing_but_under_ring_attention():
    odd = replace(WAN, sequence_tokens=32763)
    assert reason_of("tp1-usp4", odd) == "32763 tokens are not divisible by the sequence degree 4"
    assert reason_of("tp1-usp4", odd, pads_sequence=True) is None
    assert reason_of("tp1-usp2-ring2", odd, pads_sequence=True).endswith("which ring attention does not take")
    assert reason_of("tp1-usp3", WAN, pads_heads=True) is None


def test_an_engine_combines_all_gather_kv_with_ulysses_only_if_it_says_so():
    assert reason_of("tp1-usp2-ag2", WAN) is None
    assert reason_of("tp1-usp2-ag2", WAN, ag_with_ulysses=False) == "all-gather-KV is not combined with Ulysses"


def test_layers_need_not_divide_evenly_over_pipeline_stages():
    pipelined = ("tp", "pp")
    assert reason_of("tp1-usp1-pp7", WAN, degrees=pipelined) is None
    assert reason_of("tp1-usp1-pp41", WAN, degrees=pipelined) == "40 layers are fewer than pp 41"


def test_every_exclusion_names_whose_rule_it_is():
    limits = EngineLimits("box 1.0", ag_with_ulysses=False, places={EngineRule.HEADS: "(u.py:7)"})
    sources = {
        form.name: broken.source
        for form in map(parse_form, ("tp1-usp16", "tp1-usp1-pp2", "tp1-usp1-cfg4", "tp2-usp1+mask2"))
        if (broken := check(form, WAN, limits))
    }
    assert sources == {
        "tp1-usp16": "box 1.0 (u.py:7)",
        "tp1-usp1-pp2": "box 1.0",
        "tp1-usp1-cfg4": "model",
        "tp2-usp1+mask2": "configuration",
    }


def test_masked_variants_use_the_largest_divisor_of_the_local_heads():
    assert mask_chunks(parse_form("tp1-usp4"), WAN, 7) == 5
    assert mask_chunks(parse_form("tp1-usp8"), WAN, 4) == 1
    found = enumerate_forms(WAN, 4, chunks=(1, 7))
    assert "tp1-usp4+mask5" in names(found.forms)
    assert not any("mask" in form.name and form.usp * form.ag == 1 for form in found.forms)


def test_an_explicit_list_is_checked_by_the_same_rules_and_keeps_its_order():
    found = explicit_forms(["tp2-usp2", "tp1-usp4", "tp1-usp2"], WAN, 4)
    assert names(found.forms) == ["tp2-usp2", "tp1-usp4"]
    assert [(e.reason, e.source) for e in found.excluded] == [("needs 2 cards, not 4", "configuration")]


def test_the_engine_has_the_last_word():
    found = enumerate_forms(WAN, 2, refusal=lambda form: "no ring build" if form.ring > 1 else None)
    assert "tp1-usp1-ring2" not in names(found.forms)
    assert ("tp1-usp1-ring2", "no ring build") in [(e.form.name, e.reason) for e in found.excluded]


@pytest.mark.parametrize(("size", "pair"), [(2, ("tp1-usp2", "tp2-usp1")), (4, ("tp1-usp4", "tp2-usp2"))])
def test_the_pair_is_pure_ulysses_against_tp2(size, pair):
    found = same_size_pair(enumerate_forms(WAN, size).forms)
    assert tuple(names(found)) == pair


def test_features_do_not_make_a_pair():
    forms = [parse_form("tp1-usp4"), parse_form("tp1-usp4+mask5"), parse_form("tp1-usp4+cpu-offload")]
    assert same_size_pair(forms) is None


def test_a_missing_pair_is_said_with_its_reason():
    text = pair_statement(2, [parse_form("tp1-usp2")], {"tp2-usp1": "text encoder fails to load"})
    assert text == (
        "2 cards: the same-size pair is missing (tp2-usp1: text encoder fails to load). Form comparisons rest on the "
        "next size; numbers of different card counts are scaling statements, not form comparisons."
    )


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"kv_heads": 8},
        {"heads": 28, "kv_heads": 7, "ffn_dim": 14336},
        {"sequence_tokens": 32763},
        {"layers": 6},
        {"guidance_branches": 1},
    ],
)
def test_the_virtual_host_refuses_what_is_excluded_and_nothing_else(figures):
    settings = load_settings(DEFAULT_FILE)
    model, dit = replace(settings.model, **figures), build(DiT, figures)
    limits = open_engine(settings).limits()
    for form in (*splits(4), *splits(7), *splits(8)):
        excluded, refused = check(form, model, limits), refusal(dit, parse_split(form.name))
        if form.cfg > model.guidance_branches:  # the engine lets the ranks idle: useless, not refused
            assert excluded is not None
            continue
        assert (excluded is None) == (refused is None), (form.name, excluded, refused)
