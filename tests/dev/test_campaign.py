"""The decision campaign: hosts follow from their number, every rule reads the same starts, rulings meet the truth."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from campaigns import baselines, product
from campaigns.bench import choose_group
from campaigns.figure import draw_figure
from campaigns.hardness import HARD, PLAIN, SHARES
from campaigns.hosts import Experiment, draw
from campaigns.rulings import DEAD, DECLINED, RIGHT, WRONG, HostResult, Ruling, false_extrapolates, judged
from campaigns.scoring import PRODUCT, RULES, history_of, run_host, truth_of
from campaigns.starts import Starts
from campaigns.tables import Score, hardness_table, margin_table, needed_table, rules_table, starts_needed, wilson
from campaigns.theory import judge_theory
from campaigns.truth import Truth

from anchormatrix.records.conclusions.gates import Fix, GateStatus
from anchormatrix.records.form import parse_form
from virtualhost.host.scenario import Links, Scenario, Speed, Timing

QUIET = replace(PLAIN, margin=(4.0, 5.0), restart_sd=(0.1, 0.1), request_sd=(0.2, 0.2))


def starts_of(experiment) -> Starts:
    return Starts(experiment, choose_group(experiment).contract)


def truth(experiment, starts: Starts) -> Truth:
    return truth_of(experiment, starts.contract.cards)


@pytest.fixture(scope="module")
def quiet() -> Starts:
    return starts_of(draw(1, 2, QUIET))


def test_a_host_follows_from_its_number_alone():
    assert draw(3, 17) == draw(3, 17)
    assert draw(3, 17) != draw(3, 18) != draw(4, 18)
    assert all(2 <= len(draw(5, number).forms) <= 8 for number in range(6))


def test_what_one_hardness_draws_leaves_the_others_as_they_are():
    timing = draw(1, 6).scenario.timing
    calm = draw(1, 6, replace(HARD, heavy_tails=0.0, level_shifts=0.0, thermal=0.0)).scenario.timing
    assert (calm.request_tail_dof, calm.level_shifts, calm.heat_pct) == (0.0, (), 0.0)
    kept = ("restart_sd_pct", "dispersion_pct", "ramp", "request_correlation")
    assert all(getattr(calm, name) == getattr(timing, name) for name in kept)


@pytest.mark.parametrize("hard", [PLAIN, HARD])
def test_the_true_margin_is_the_one_that_was_drawn(hard):
    hard = replace(hard, margin=(2.5, 2.5), trouble=0.0, padding=0.0)
    for number in range(3):
        experiment = draw(2, number, hard)
        assert truth(experiment, starts_of(experiment)).margin_pct == pytest.approx(2.5)


def test_a_plain_host_has_nothing_but_forms_margins_and_deviations():
    scenario = draw(1, 0, PLAIN).scenario
    timing = scenario.timing
    assert not scenario.faults and not scenario.tenants and timing.step_pct == 0.0
    assert (timing.request_correlation, timing.request_tail_dof, timing.level_shifts, timing.heat_pct) == (0, 0, (), 0)
    assert {name for name in SHARES if getattr(PLAIN, name)} == set()


def test_a_dead_feature_cannot_be_had_and_has_the_times_of_the_form_without_it():
    hosts = (draw(4, number, replace(PLAIN, dead_features=1.0)) for number in range(20))
    experiment = next(e for e in hosts if any(fault.kind == "dead_masking" for fault in e.scenario.faults))
    found = truth(experiment, starts_of(experiment))
    assert len(found.dead) == 1 and not found.dead & set(found.full_s)
    assert judged(Ruling(next(iter(found.dead)), 2, 1.0), found) == DEAD


def test_a_shorter_session_is_the_beginning_of_a_longer_one(quiet):
    form = quiet.experiment.forms[0].name
    two, three = quiet.session(form, 1, repeats=2), quiet.session(form, 1, repeats=3)
    assert two.timed.values_s["anchor"] == three.timed.values_s["anchor"][:2]
    assert two.seconds < three.seconds
    stopped = quiet.session(form, 1, stop=lambda anchors: "enough" if anchors else "")
    assert (len(stopped.timed.values_s["anchor"]), stopped.timed.session.reason) == (1, "enough")


def test_a_start_is_the_same_whatever_was_asked_before(quiet):
    form = quiet.experiment.forms[-1].name
    alone = Starts(quiet.experiment, quiet.contract)
    for window in (1, 2):
        quiet.session(form, window)
    assert alone.mean(form, 2) == quiet.mean(form, 2) != quiet.mean(form, 1)


@pytest.mark.parametrize("rule", PRODUCT)
def test_a_quiet_host_is_decided_rightly_by_every_design(quiet, rule):
    ruling, _ = product.decide(quiet, product.RULES[rule], history_of(quiet.experiment))
    found = truth(quiet.experiment, quiet)
    assert (ruling.winner, judged(ruling, found)) == (found.best, RIGHT)
    assert ruling.starts <= 2 * len(quiet.experiment.forms)


class Prepared:
    """Starts whose means are given: one list of them for each form."""

    def __init__(self, **means: list[float]) -> None:
        self.means = means
        self.experiment = SimpleNamespace(forms=[SimpleNamespace(name=name) for name in means])
        self.contract = SimpleNamespace(size=4)

    def session(self, form: str, window: int):
        return SimpleNamespace(seconds=10.0)

    def mean(self, form: str, window: int, tier: str = "anchor"):
        return self.means[form][window - 1] if self.means[form] else None


def test_the_lowest_mean_of_two_starts_wins_unless_the_second_is_within_the_floor():
    near = Prepared(a=[1.0, 1.02], b=[1.01, 1.02], c=[])
    ruling = baselines.lowest_mean(near)
    assert (ruling.winner, ruling.starts, ruling.card_s) == ("a", 5, 200.0)
    assert baselines.lowest_mean(near, floor_pct=1.0).winner is None


def test_rinott_asks_for_as_many_starts_as_its_constant_says():
    assert baselines.rinott_h(2, 10, 0.95) == pytest.approx(2.614, abs=0.002)
    assert baselines.rinott_h(4, 10, 0.95) > baselines.rinott_h(2, 10, 0.95)
    same = Prepared(a=[1.0] * 8, b=[1.1] * 8)
    assert baselines.rinott(same, first=3, confidence=0.95) == Ruling("a", 6, 240.0)
    wide = Prepared(a=[1.0, 1.1, 0.9], b=[1.5, 1.6, 1.4])
    assert baselines.rinott(wide, first=3, confidence=0.95).winner is None


def test_kim_nelson_eliminates_and_declines_at_the_cap():
    clear = Prepared(a=[1.0, 1.001, 0.999] * 3, b=[1.2, 1.201, 1.2] * 3, c=[1.3] * 9)
    assert baselines.kim_nelson(clear, first=3, confidence=0.95).winner == "a"
    blurred = Prepared(a=[1.0, 1.1, 0.9] * 3, b=[1.0, 0.9, 1.1] * 3)
    declined = baselines.kim_nelson(blurred, first=3, confidence=0.95)
    assert (declined.winner, declined.starts) == (None, 2 * baselines.CAP)


def test_the_plain_reference_stops_as_soon_as_it_is_sure():
    clear = Prepared(a=[1.0, 1.001] * 4, b=[1.2, 1.201] * 4)
    assert baselines.pooled_sequential(clear) == Ruling("a", 4, 160.0)
    blurred = Prepared(a=[1.0, 1.1] * 4, b=[1.02, 1.12] * 4)
    assert baselines.pooled_sequential(blurred).winner is None


def test_right_wrong_dead_and_declined_are_told_apart_by_the_true_step():
    found = Truth(
        {"a": 1.0, "b": 1.005, "c": 1.1}, {}, {}, dead=frozenset({"d"}), variants_s={"a+cpu-offload": (1.02, 1.0)}
    )
    named = [judged(Ruling(form, 4, 1.0), found) for form in ("a", "b", "c", "gone", "d", "a+cpu-offload")]
    assert named == [RIGHT, RIGHT, WRONG, WRONG, DEAD, WRONG]
    assert judged(Ruling(None, 4, 1.0, tied=("a", "b")), found) == RIGHT
    assert judged(Ruling(None, 4, 1.0, tied=("a", "c")), found) == DECLINED
    assert judged(Ruling(None, 4, 1.0), found) == DECLINED


def test_extrapolates_is_false_when_few_steps_would_have_misled():
    flips = Truth({"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1}, {"a": 1.1, "b": 1.0})
    drifts = Truth({"a": 1.1, "b": 1.2}, {"a": 1.1, "b": 1.2}, {"a": 1.0, "b": 1.1})
    holds = Truth({"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1}, {"a": 1.0, "b": 1.1})
    says = Ruling("a", 4, 1.0, extrapolates=True, r=("a", "b"))
    assert [false_extrapolates(says, found, 0.3) for found in (flips, drifts, holds)] == [True, True, False]
    assert not false_extrapolates(replace(says, extrapolates=False), drifts, 0.3)


def test_history_knows_the_deviation_between_starts_to_twenty_degrees_of_freedom():
    experiment = draw(1, 2, replace(PLAIN, restart_sd=(1.0, 1.0), request_sd=(0.2, 0.2)))
    history = history_of(experiment)
    assert history.freedom == 20
    assert 0.5 < history.restart_sd_pct < 1.6


def result(kind: str, margin: float, **more) -> HostResult:
    ruling = Ruling("a", 8, 3600.0, confidence="high")
    given = {"choice": True, "hardnesses": (), **more}
    return HostResult(
        number=0, forms=4, margin_pct=margin, restart_sd_pct=1.0, request_sd_pct=0.3, best="a",
        rulings={"x": ruling}, judgements={"x": kind}, false_extrapolates={"x": False}, **given,
    )  # fmt: skip


def test_the_tables_count_every_host_with_a_choice_once():
    results = [result(RIGHT, 4.0), result(WRONG, 2.0, hardnesses=("thermal",)), result(DECLINED, 3.5)]
    results += [result(DEAD, 0.5), result(DECLINED, 0.0, choice=False)]
    score = Score(results, "x")
    assert (score.hosts, score.decided, score.wrong, score.dead, score.high_wrong) == (4, 3, 1, 1, 2)
    assert (score.big, score.decided_big, score.card_time, score.hours) == (2, 1, 1.0, 4.0)
    assert rules_table(results, ["x"]).splitlines()[1].split()[:6] == ["x", "75.0", "%", "30–95", "33.33", "%"]
    assert len(margin_table(results, ["x"]).splitlines()) == 3
    lines = [line.split() for line in hardness_table(results, "x").splitlines()[1:]]
    assert [line[-2:] for line in lines] == [["0", "+0"], ["0", "+0"]]


def test_the_table_of_hardnesses_counts_how_many_hosts_each_leaves_undecided():
    """Of four noisy hosts three are undecided, of four others one: two more than if noise did nothing."""
    noisy = [result(kind, 4.0, hardnesses=("noisy",)) for kind in (RIGHT, DECLINED, DECLINED, DECLINED)]
    quiet = [result(kind, 4.0) for kind in (RIGHT, RIGHT, WRONG, DECLINED)]
    (line,) = hardness_table(noisy + quiet, "x").splitlines()[1:]
    assert " ".join(line.split()) == "noisy 4 25 % 0.00 % 1.00 4 75 % 33.33 % 1.00 3 +2"


def test_a_host_needs_starts_by_the_square_of_its_noise_over_its_margin():
    """Four forms compare three times at 1.5 %: z = 2.576. One start deviates by √(1 + 1.35 · 0.3² ÷ 3) = 1.020 %."""
    assert starts_needed(result(DECLINED, 1.0)) == pytest.approx(2 * 1.0405 * (2.5758 / 2) ** 2, rel=1e-4)
    assert starts_needed(result(DECLINED, 3.0)) == pytest.approx(starts_needed(result(DECLINED, 1.0)) / 4)
    lines = needed_table([result(RIGHT, 3.0), result(DECLINED, 1.0)], ["x"]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["hosts", "1", "1", "0", "0", "0"],
        ["x", "100", "%", "0.00", "%", "1.00", "0", "%", "–", "1.00", "–", "–", "–"],
    ]


def test_the_interval_of_a_share_is_wilsons():
    assert wilson(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert wilson(5, 100) == pytest.approx((0.0215, 0.1118), abs=1e-4)


def test_every_rule_rules_on_a_hard_host():
    hosts = (draw(1, number, replace(HARD, captures=0.0)) for number in range(40))
    found = run_host(next(host for host in hosts if len(host.forms) == 3))
    assert set(found.rulings) == set(found.judgements) == set(RULES)


def said(gate: str, form: str):
    return SimpleNamespace(gate=gate, form=form, status=GateStatus.FAILED)


def projected(fix: Fix, form: str, against: str, *, reverses: bool):
    return SimpleNamespace(fix=fix, form=form, against=against, reverses=reverses)


def test_gates_and_projections_are_held_against_a_host_where_the_one_thing_was_changed():
    slow = Links(classes={"UB": Speed(4.0, 20.0)}, in_model_efficiency=0.5)  # communication is half of a step and more
    names = ("tp1-usp4", "tp2-usp2")
    scenario = Scenario(name="slow links", links=slow, timing=Timing(dispersion_pct=0.2, restart_sd_pct=0.1))
    forms = tuple(map(parse_form, names))
    experiment = Experiment(0, scenario, 4, forms, draw(1, 0, PLAIN).figures, 20, captures=True)
    cards = (0, 1, 2, 3)
    found = truth_of(experiment, cards)
    best, other = sorted(names, key=found.full_s.__getitem__)
    gates = [said("G3", other), said("G4", best), said("G5", best)]
    projections = [projected(fix, best, other, reverses=False) for fix in Fix]
    theory = judge_theory(SimpleNamespace(gates=gates, projections=projections), experiment, cards, found)
    assert theory.failures == 3
    assert [text.split()[0] for text in theory.false_failures] == ["G3", "G4", "G5"]
    assert theory.projections == 3, "no host can be given less computing"
    assert len(theory.contradicted) == 3, "the best form with anything fixed is ahead"
    held = [projected(fix, best, other, reverses=True) for fix in Fix]
    assert not judge_theory(SimpleNamespace(gates=(), projections=held), experiment, cards, found).contradicted


def test_the_figure_has_a_line_for_every_kind_of_rule(tmp_path):
    results = [result(RIGHT, 4.0), result(WRONG, 2.0)]
    families = {f"lines {number}": ("x",) for number in range(12)}
    draw_figure(tmp_path / "figure.svg", results, families, ("x",))
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in drawn for name in families)
    assert "<dc:date>" not in drawn
