"""The most promising forms of a size: the best of each way to split, those that send least; the others are named."""

from __future__ import annotations

import msgspec
import pytest
from night_results import contract
from run_plans import contract_plan

from anchormatrix.config.merge import load_settings
from anchormatrix.config.project import ROOT
from anchormatrix.planning.candidates import Candidates, enumerate_forms
from anchormatrix.planning.configured import candidates_of
from anchormatrix.planning.promising import by_promise, idle_share, keep_promising, left_out_words, sent_gb
from anchormatrix.records.form import parse_form
from anchormatrix.records.plan import RuledOut
from anchormatrix.records.settings.things import ModelSettings

WAN = ModelSettings(
    layers=40, heads=40, head_dim=128, sequence_tokens=32760, guidance_branches=2, weights_gb=28, cross_attention=True
)
ONE_BRANCH = ModelSettings(layers=57, heads=24, head_dim=128, sequence_tokens=4096, weights_gb=24)
HIDDEN_GB = 32760 * 5120 * 2 / 1e9  # hidden states of all tokens, two bytes a value: 0.335 GB


@pytest.mark.parametrize(
    ("form", "gb"),
    [
        ("tp1-usp2", 40 * 2 * 4 * HIDDEN_GB / 2 / 2),  # Q, K, V, output: half of a half leaves the rank
        ("tp2-usp1", 40 * 2 * 3 * HIDDEN_GB),  # three all-reduces over two ranks: each puts the tensor out once
        ("tp1-usp1-cfg2", 0.0),
    ],
)
def test_what_a_rank_sends_in_a_step(form, gb):
    assert sent_gb(parse_form(form), WAN) == pytest.approx(gb)


def test_a_pipeline_of_four_stages_waits_three_fifths_of_a_step_with_two_branches():
    assert idle_share(parse_form("tp1-usp1-pp4"), WAN) == 0.6
    assert idle_share(parse_form("tp1-usp4"), WAN) == 0


@pytest.mark.parametrize(
    ("size", "model", "first"),
    [
        (2, WAN, ["tp1-usp1-cfg2", "tp1-usp2", "tp2-usp1"]),
        (4, WAN, ["tp1-usp2-cfg2", "tp1-usp4", "tp2-usp1-cfg2"]),
        (8, WAN, ["tp1-usp4-cfg2", "tp1-usp8", "tp2-usp2-cfg2"]),
        (4, ONE_BRANCH, ["tp1-usp4", "tp2-usp2", "tp4-usp1"]),
    ],
)
def test_the_best_of_each_way_to_split_comes_first(size, model, first):
    forms = enumerate_forms(model, size).forms
    assert [form.name for form in by_promise(forms, model)[:3]] == first


def test_offload_and_pipelines_come_last():
    names = ("tp1-usp4+layerwise-offload", "tp1-usp1-pp4", "tp4-usp1")
    ranked = by_promise([parse_form(name) for name in names], WAN)
    assert [form.name for form in ranked] == ["tp4-usp1", "tp1-usp1-pp4", "tp1-usp4+layerwise-offload"]


def test_what_is_left_out_says_its_place_and_how_to_measure_it():
    forms = tuple(parse_form(name) for name in ("tp4-usp1", "tp1-usp4"))
    found = keep_promising(Candidates(4, forms, ()), WAN, 1)
    assert [form.name for form in found.forms] == ["tp1-usp4"]
    assert [(one.form.name, one.reason, one.source) for one in found.excluded] == [
        (
            "tp4-usp1",
            "number 2 of 2 by promise: a rank would send 120.8 GB a step; matrix.most_forms: null measures all",
            "matrix.most_forms",
        )
    ]


def test_a_person_is_told_how_many_forms_are_left_out_and_which_would_come_next():
    forms = enumerate_forms(WAN, 2).forms
    found = keep_promising(Candidates(2, forms, ()), WAN, 2)
    out = tuple(RuledOut(form=one.form.name, reason=one.reason, source=one.source) for one in found.excluded)
    planned = contract_plan(contract(), [form.name for form in found.forms])
    assert left_out_words(planned) == ""
    assert left_out_words(msgspec.structs.replace(planned, excluded=out)) == (
        "2 of 5 possible forms are measured, the most promising (tp1-usp2, tp1-usp1-cfg2); next would come tp2-usp1,"
        " tp1-usp1-ag2, tp1-usp1-ring2; matrix.most_forms: null measures all"
    )


def test_forms_that_are_asked_for_by_name_are_all_measured():
    settings = load_settings(ROOT / "config" / "config.yaml")
    assert settings.matrix.most_forms == 3
    assert len(candidates_of(settings, 4).forms) == 2
    assert keep_promising(Candidates(4, candidates_of(settings, 4).forms, ()), WAN, None).excluded == ()
