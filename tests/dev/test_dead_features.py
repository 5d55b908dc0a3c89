"""Dead features never win, living ones do: log, answers and profiler files of whole sessions, judged as a run does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from campaigns import product
from campaigns.bench import choose_group
from campaigns.hosts import Experiment
from campaigns.scoring import history_of
from campaigns.starts import Starts
from campaigns.truth import full_step

from anchormatrix.records.conclusions.gates import FeatureEffect, Gates
from anchormatrix.records.form import parse_form
from anchormatrix.records.settings.things import ModelSettings
from virtualhost.host.faults import Fault
from virtualhost.host.model import Behaviour, DiT, StepRule
from virtualhost.host.scenario import Scenario, Timing
from virtualhost.server.exchange import parse_split

MASKED, LAYERWISE, SHARED = "tp1-usp4+mask2", "tp1-usp4+layerwise-offload", "tp1-usp4+distributed-layerwise-offload"
DIT = DiT(layers=6, heads=8, kv_heads=8, head_dim=64, ffn_dim=2048, sequence_tokens=8192, text_tokens=64)
SAME = ("layers", "heads", "kv_heads", "head_dim", "ffn_dim", "sequence_tokens", "guidance_branches", "weights_gb",
        "text_encoder_gb", "vae_gb", "activation_gb")  # fmt: skip
FIGURES = ModelSettings(**{name: getattr(DIT, name) for name in SAME})


def judged(form: str, *faults: Fault, plain: bool = True, design: str = "full") -> tuple[Gates, FeatureEffect]:
    """What is decided on a quiet host where the form is 5 % faster than any other, and the effect of its feature."""
    names = (*(["tp1-usp4"] if plain else []), form, "tp2-usp2")  # beside an offload the plain form comes by itself
    scenario = Scenario("quiet", dit=DIT, timing=Timing(dispersion_pct=0.2, restart_sd_pct=0.1), faults=faults)
    step = {name: full_step(scenario, parse_split(name), (0, 1, 2, 3), 40) for name in {*names, "tp1-usp4"}}
    factors = {name: max(step.values()) / seconds * (0.95 if name == form else 1.0) for name, seconds in step.items()}
    rules = tuple(StepRule(factor, forms=(name,)) for name, factor in factors.items())
    scenario = replace(scenario, behaviour=Behaviour(step_rules=rules))
    experiment = Experiment(0, scenario, 4, tuple(map(parse_form, names)), FIGURES, 40)
    starts = Starts(experiment, choose_group(experiment).contract)
    _, gates = product.decide(starts, product.RULES[f"{design} design"], history_of(experiment))
    assert all(starts.mean(form, 1) < 0.97 * starts.mean(other, 1) for other in names if other != form)
    return gates, gates.effects[form][0]


@pytest.mark.parametrize(("form", "plain"), [(MASKED, True), (LAYERWISE, False), (SHARED, True)])
def test_a_living_feature_wins(form, plain):
    gates, effect = judged(form, plain=plain)
    assert (effect.status, gates.decision.winner, gates.decision.confidence) == ("proven", form, "high")


@pytest.mark.parametrize(
    ("form", "fault", "plain"),
    [
        (MASKED, Fault("dead_masking", form=MASKED), False),
        (LAYERWISE, Fault("dead_offload", form=LAYERWISE), True),
        (LAYERWISE, Fault("dead_offload", form=LAYERWISE, logged=False), False),
        (LAYERWISE, Fault("dead_offload", form=LAYERWISE, logged=False, text="Skipping offloading."), False),
        (SHARED, Fault("dead_offload", form=SHARED), False),
    ],
)
def test_a_dead_feature_is_void_however_fast_its_form_is(form, fault, plain):
    gates, effect = judged(form, fault, plain=plain)
    assert (effect.status, gates.decision.winner) == ("void", None)
    assert ("tp1-usp4" in gates.decision.tied_with) == (plain or form != MASKED)
    assert next(gate.status for gate in gates.gates if (gate.form, gate.gate) == (form, "G1")) == "failed"
    assert plain or form != MASKED or effect.text in gates.decision.sentence


@pytest.mark.parametrize("fault", [Fault("dead_masking", form=MASKED), Fault("dead_offload", form=LAYERWISE)])
def test_the_adaptive_design_is_not_led_by_a_dead_form(fault):
    gates, effect = judged(fault.form, fault, design="adaptive")
    assert (effect.status, gates.decision.winner) == ("void", None)


def test_a_dead_form_leaves_the_others_their_comparison():
    gates, _ = judged(MASKED, Fault("dead_masking", form=MASKED))
    assert gates.decision.tied_with == ("tp1-usp4", "tp2-usp2")
