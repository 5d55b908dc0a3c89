"""The decision campaign: hosts follow from their number, outcomes are compared with the truth, the table adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from campaigns.hosts import draw
from campaigns.measuring import REPEATS, WINDOWS, Outcome, run_adaptive, run_full
from campaigns.scoring import (
    RIGHT,
    RIGHTLY_DECLINED,
    WRONG,
    WRONGLY_DECLINED,
    HostResult,
    Truth,
    decidable,
    false_extrapolates,
    judged,
    run_host,
    table,
    truth_of,
)

from anchormatrix.planning.adaptive_state import AdaptiveLimits
from virtualhost.host.faults import Fault
from virtualhost.host.model import Behaviour, StepRule
from virtualhost.host.scenario import LogStyle, Residue


def quiet(number=28, **changes):
    """A drawn host without noise, tenants, faults or rules."""
    experiment = draw(1, number)
    still = {"dispersion_pct": 0.3, "restart_sd_pct": 0.05, "step_pct": 0.1, "ramp": (0.86, 0.9)}
    timing = replace(experiment.scenario.timing, **still)
    calm = {
        "timing": timing,
        "tenants": (),
        "faults": (),
        "health": (),
        "residue": Residue(),
        "behaviour": Behaviour(),
        "log": LogStyle(),
    }
    return replace(experiment, scenario=replace(experiment.scenario, **{**calm, **changes}))


def test_a_host_follows_from_its_number_alone():
    assert draw(3, 17) == draw(3, 17)
    assert draw(3, 17) != draw(3, 18) != draw(4, 18)
    assert all(len(draw(5, number).forms) >= 2 for number in range(20))


@pytest.mark.parametrize("run", [run_full, run_adaptive])
def test_a_quiet_host_is_decided_rightly_by_both_designs(run):
    experiment = quiet()
    outcome = run(experiment)
    truth = truth_of(experiment, outcome.cards)
    assert truth.margin_pct > 2
    assert (outcome.winner, judged(outcome, truth)) == (truth.best, RIGHT)
    assert outcome.verdict.status == "extrapolates"


def test_the_adaptive_design_uses_less_card_time_and_says_what_it_left_out():
    experiment = quiet()
    full, less = run_full(experiment), run_adaptive(experiment)
    assert less.card_s < full.card_s
    assert full.sessions == len(experiment.forms) * WINDOWS + 2  # and two smokes
    if less.sessions < full.sessions:
        assert all(order.skip for order in less.skipped)
    assert AdaptiveLimits().base_repeats * WINDOWS >= REPEATS


def test_a_form_that_silently_does_not_apply_never_wins():
    experiment = quiet()
    best = truth_of(experiment, run_full(experiment).cards).best
    other = next(form.name for form in experiment.forms if form.name != best)
    spoiled = quiet(faults=(Fault("not_applied", form=best, applied=other),))
    outcome = run_full(spoiled)
    truth = truth_of(spoiled, outcome.cards)
    assert best not in truth.full_s
    assert outcome.winner != best
    assert judged(outcome, truth) in (RIGHT, RIGHTLY_DECLINED)


def test_an_order_that_flips_is_said_and_the_anchor_decides():
    experiment = quiet()
    truth = truth_of(experiment, run_full(experiment).cards)
    slow = StepRule(factor=1 + 2 * truth.margin_pct / 100 + 0.05, min_steps=10, forms=(truth.best,))
    flipped = quiet(behaviour=Behaviour(step_rules=(slow,)))
    outcome = run_full(flipped)
    assert outcome.verdict.status == "order_flip"
    assert judged(outcome, truth_of(flipped, outcome.cards)) == RIGHT


def test_a_group_in_the_residue_state_is_not_measured_on():
    experiment = quiet()
    first = run_full(experiment).cards
    if len(first) == len(experiment.scenario.cards.ids):
        pytest.skip("this host has one group only")
    assert set(run_full(quiet(residue=Residue(first, 10.0))).cards).isdisjoint(first)


def decided(winner):
    """An outcome that names a winner."""

    class Named(Outcome):
        @property
        def winner(self):
            return winner

    return Named(cards=(0,))


def test_right_wrong_and_declined_are_told_apart_by_the_true_margin():
    truth = Truth({"a": 1.0, "b": 1.005, "c": 1.1}, {}, {}, 0.3)
    assert [judged(decided(form), truth) for form in ("a", "b", "c", "gone")] == [RIGHT, RIGHT, WRONG, WRONG]
    clear = Truth({"a": 1.0, "b": 1.1}, {}, {}, 0.3)
    close = Truth({"a": 1.0, "b": 1.009}, {}, {}, 0.3)
    noisy = Truth({"a": 1.0, "b": 1.1}, {}, {}, 2.9)
    alone = Truth({"a": 1.0}, {}, {}, 0.3)
    assert [decidable(truth) for truth in (clear, close, noisy, alone)] == [True, False, False, False]
    assert judged(Outcome(), clear) == WRONGLY_DECLINED
    assert judged(Outcome(), noisy) == RIGHTLY_DECLINED


class _Says:
    def __init__(self, status, r):
        self.status, self.r, self.tied_with, self.reason = status, r, (), ""


def test_extrapolates_is_false_when_few_steps_would_have_misled():
    flips = Truth({"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1}, {"a": 1.1, "b": 1.0}, 0.3)
    drifts = Truth({"a": 1.1, "b": 1.2}, {"a": 1.1, "b": 1.2}, {"a": 1.0, "b": 1.1}, 0.3)
    holds = Truth({"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1}, 0.3)
    says = Outcome(verdict=_Says("extrapolates", {"a": 1.0, "b": 1.0}))
    assert [false_extrapolates(says, truth) for truth in (flips, drifts, holds)] == [True, True, False]
    assert not false_extrapolates(Outcome(verdict=_Says("drift", {"a": 1.1})), drifts)


def test_the_table_counts_every_host_once():
    result = run_host(quiet())
    assert isinstance(result, HostResult)
    lines = table([result, replace(result, judgement=(WRONG, RIGHTLY_DECLINED))]).splitlines()
    counted = {line[:34].strip(): line[34:].split() for line in lines}
    assert counted["right"] == ["1", "50.0", "%", "1", "50.0", "%"]
    assert counted["wrong"] == ["1", "50.0", "%", "0", "0.0", "%"]
    assert counted["rightly declined"] == ["0", "0.0", "%", "1", "50.0", "%"]
    assert counted["card time, share of full"][0] == "100.0%"
