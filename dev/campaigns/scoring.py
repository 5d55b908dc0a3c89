"""Hosts under every rule: the same starts for all of them, and how each ruling compares with the truth."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence

from anchormatrix.records.conclusions.gates import Gates
from campaigns import baselines, product
from campaigns.bench import choose_group
from campaigns.hosts import Experiment
from campaigns.noise import ANCHOR, FEW, RANGE_OF_THREE
from campaigns.rulings import HostResult, Ruling, false_extrapolates, judged
from campaigns.starts import REPEATS, Starts
from campaigns.tables import MEDIAN_OF_THREE
from campaigns.theory import judge_theory
from campaigns.truth import Truth, truth_on

HISTORY_FREEDOM = 20
PRODUCT = tuple(product.FAMILIES)
# lines of the figure: rules of one kind, which differ in how sure they want to be
FAMILIES: Mapping[str, tuple[str, ...]] = {
    name: tuple(family) for name, family in (*product.FAMILIES.items(), *baselines.FAMILIES.items())
}
CURVES = tuple(name for family in FAMILIES.values() for name in family)
RULES = (
    *PRODUCT,
    "always decline",
    "lowest anchor mean",
    "lowest few mean",
    "lowest anchor mean, 1 % floor",
    "Rinott 0.95",
    "Rinott 0.995",
    "Kim-Nelson 0.95",
    "Kim-Nelson 0.995",
    "plain sequential",
)


def run_host(experiment: Experiment, rules: Sequence[str] = RULES) -> HostResult:
    """Every rule on one host, each on the same server starts."""
    begun = time.process_time()
    chosen = choose_group(experiment)
    names = tuple(form.name for form in experiment.forms)
    rulings = {name: Ruling(None, 0, 0.0, text=chosen.why) for name in rules}
    gates: dict[str, Gates] = {}
    truth = Truth({}, {}, {})
    if chosen.contract is not None:
        starts = Starts(experiment, chosen.contract)
        for name in rules:
            rulings[name], judged_gates = _ruling(name, starts)
            if judged_gates is not None and experiment.captures:
                gates[name] = judged_gates
        named = {ruling.winner for ruling in rulings.values() if ruling.winner} - set(names)
        truth = truth_of(experiment, chosen.contract.cards, variants=named)
    timing = experiment.scenario.timing
    return HostResult(
        number=experiment.number,
        forms=len(names),
        choice=len(truth.full_s) > 1,
        margin_pct=truth.margin_pct,
        restart_sd_pct=timing.restart_sd_pct,
        request_sd_pct=timing.dispersion_pct / RANGE_OF_THREE,
        hardnesses=hardnesses(experiment),
        best=truth.best or "",
        rulings=rulings,
        judgements={name: judged(ruling, truth) for name, ruling in rulings.items()},
        false_extrapolates={
            name: false_extrapolates(ruling, truth, timing.dispersion_pct) for name, ruling in rulings.items()
        },
        theory={name: judge_theory(found, experiment, starts.contract.cards, truth) for name, found in gates.items()},
        losses={
            name: (truth.loss_pct(ruling.winner), truth.anchor_loss_pct(ruling.winner))
            for name, ruling in rulings.items()
            if ruling.winner and math.isfinite(truth.loss_pct(ruling.winner))
        },
        seconds=time.process_time() - begun,
    )


def _ruling(name: str, starts: Starts) -> tuple[Ruling, Gates | None]:
    if rule := baselines.RULES.get(name):
        return rule(starts), None
    return product.decide(starts, product.RULES[name], history_of(starts.experiment))


def truth_of(experiment: Experiment, cards: tuple[int, ...], variants: Iterable[str] = ()) -> Truth:
    """The truth of an experiment on a group of cards."""
    names = [form.name for form in experiment.forms]
    steps = {"few": FEW, "anchor": ANCHOR, "full": experiment.full_steps}
    return truth_on(experiment.scenario, names, cards, **steps, variants=variants)


def history_of(experiment: Experiment) -> product.History:
    """What twenty earlier starts would say of this host: s² of start medians is their variance times χ² ÷ freedom."""
    timing = experiment.scenario.timing
    kept = timing.request_correlation**2  # a request of the other tier lies between two of one
    request = (timing.dispersion_pct / RANGE_OF_THREE) ** 2 + timing.step_pct**2 / ANCHOR
    within = request / REPEATS * MEDIAN_OF_THREE * (1 + 4 / 3 * kept + 2 / 3 * kept**2)
    true_sd = (timing.restart_sd_pct**2 + within) ** 0.5
    chi_squared = random.Random(f"history|{experiment.scenario.seed}").gammavariate(HISTORY_FREEDOM / 2, 2.0)
    return product.History(true_sd * (chi_squared / HISTORY_FREEDOM) ** 0.5, HISTORY_FREEDOM)


def hardnesses(experiment: Experiment) -> tuple[str, ...]:
    """Which hardnesses this host has, by the names of the options that draw them; ``trouble`` by its kinds."""
    scenario, timing = experiment.scenario, experiment.scenario.timing
    kinds = {fault.kind for fault in scenario.faults}
    general = [rule for rule in scenario.behaviour.step_rules if rule.first_step or rule.min_steps]
    found = {
        "restart-sd above 1 %": timing.restart_sd_pct > 1,
        "noisy": timing.dispersion_pct / RANGE_OF_THREE > 1,
        "correlated": timing.request_correlation > 0,
        "heavy-tails": timing.request_tail_dof > 0,
        "level-shifts": bool(timing.level_shifts),
        "thermal": timing.heat_pct > 0 or timing.thermal_pct_per_step > 0,
        "long-ramps": len(timing.ramp) > 3,
        "step-rules": bool(general),
        "dead-features": bool(kinds & {"dead_masking", "dead_offload"}),
        "padding": any(experiment.scenario.dit.sequence_tokens % form.sequence_degree for form in experiment.forms),
        "captures": experiment.captures,
        "tenants": bool(scenario.tenants),
        "residue": bool(scenario.residue.cards),
        "alarms": bool(scenario.health),
        "failing forms": bool(kinds & {"not_applied", "crash", "oom", "comm_init"}),
        "lost or slow requests": bool(kinds & {"lost_response", "slow"}),
        "spliced lines": scenario.log.interleave_every > 0,
        "no progress bar": not scenario.log.progress_bar,
        "more than four forms": len(experiment.forms) > 4,
    }
    return tuple(name for name, present in found.items() if present)
