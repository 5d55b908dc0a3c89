"""Projections change one thing, keep the other side's measured costs, and say where the order reverses; scaling."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from contracts import contract_on
from measured import selection_record

from anchormatrix.decide.captured import StepParts
from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.decide.gates import GateInputs, evaluate
from anchormatrix.decide.theory.projection import Side, all_projections, project
from anchormatrix.decide.theory.scaling import Measured, incomparable, scaling, scaling_words
from anchormatrix.records.attribution import Family
from anchormatrix.records.conclusions.gates import Fix
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import SessionStatus


def form(name, step_s, parts=None):
    return FormEvidence(parse_form(name), SessionStatus.MEASURED, step_anchor_s=step_s, usable=True, parts=parts)


def family(name, communicator, exposed_ms):
    return Family(
        family=name, communicator=communicator, calls=40, calls_per_layer=1.0, sum_ms=200, mean_ms=5, median_ms=5,
        max_ms=5, union_ms=200, union_over_sum=1.0, exposed_ms=exposed_ms,
    )  # fmt: skip


FAST = form("tp1-usp4", 1.0, StepParts(900, 80, 0, 20, exposed_share=0.08))
SLOW = form("tp2-usp2", 1.2, StepParts(960, 220, 0, 20, mask_bound=0.5, masked_ms=200))


def test_exposed_to_its_bound_saves_only_the_exposed_part():
    found = project(Fix.EXPOSED_TO_BOUND, Side(SLOW), Side(FAST))
    assert found.step_s == pytest.approx(1.2 - 0.1)
    assert (found.reverses, found.against_step_s, found.both_reverse) == (False, None, None)
    assert found.threshold == pytest.approx(20)  # 220 ms exposed, 200 ms behind
    assert found.text == (
        "Projection: with exposed communication at its masking bound, tp2-usp2 would take 1.100 s per step, 10.0 % "
        "above tp1-usp4's measured 1.000 s: the order stays. What the same would do for tp1-usp4 is unknown: its "
        "evidence does not tell. The order reverses when exposed communication per step of tp2-usp2 alone falls below "
        "20.0 ms (measured 220.0 ms). Computing and idle time are kept as measured."
    )


def test_a_fix_that_reverses_the_order_alone_is_also_done_for_the_winner():
    """20 ms behind. Halving wins 110 of 220 ms for the loser and 40 of 80 ms for the winner: the order reverses either
    way. Of a winner with 200 ms exposed it wins 100 ms: 0.91 s against 0.9 s, and the order stays."""
    near = replace(SLOW, step_anchor_s=1.02)
    found = project(Fix.PAYLOAD_HALVED, Side(near), Side(FAST))
    assert (found.step_s, found.against_step_s) == (pytest.approx(0.91), pytest.approx(0.96))
    assert (found.reverses, found.both_reverse) == (True, True)
    exposed = form("tp1-usp4", 1.0, StepParts(800, 200, 0, 0))
    found = project(Fix.PAYLOAD_HALVED, Side(near), Side(exposed))
    assert (found.reverses, found.against_step_s, found.both_reverse) == (True, pytest.approx(0.9), False)
    assert found.both_words == "with the same for tp1-usp4 the order stays"
    assert (
        "tp2-usp2 would take 0.91 s per step, 9.0 % below tp1-usp4's measured 1.000 s: the order reverses. With the "
        "same for tp1-usp4, 0.91 s stands 1.1 % above its 0.9 s: the order stays." in found.text
    )


def test_both_sides_have_their_own_masking_bound_and_their_own_sweep():
    winner = form("tp1-usp4", 1.0, StepParts(800, 200, 0, 0, mask_bound=0.75, masked_ms=200))
    found = project(Fix.EXPOSED_TO_BOUND, Side(SLOW), Side(winner))  # 100 of 220 ms, 150 of 200 ms
    assert (found.step_s, found.against_step_s) == (pytest.approx(1.1), pytest.approx(0.85))
    found = project(Fix.PAYLOAD_HALVED, Side(SLOW, halved_time_ratio=0.5), Side(winner, halved_time_ratio=0.9))
    assert (found.step_s, found.against_step_s) == (pytest.approx(1.09), pytest.approx(0.98))


def test_halved_payload_keeps_the_fixed_cost_that_the_sweep_shows():
    assert project(Fix.PAYLOAD_HALVED, Side(SLOW), Side(FAST)).step_s == pytest.approx(1.2 - 0.11)
    found = project(Fix.PAYLOAD_HALVED, Side(SLOW, halved_time_ratio=0.8), Side(FAST))
    assert found.step_s == pytest.approx(1.2 - 0.044)


def test_a_familys_bandwidth_ratio_scales_that_family_only():
    """Of 220 ms exposed 165 are the all-to-all's and 55 the all-reduce's: twice the bandwidth wins half of that."""
    mixed = replace(SLOW, families=(family("alltoall", "445", 150.0), family("allReduce", "503", 50.0)))

    def projected(a2a=None, allreduce=None, behind_s=0.02):
        ratios = {("alltoall", "445"): a2a, ("allReduce", "503"): allreduce}
        side = Side(replace(mixed, step_anchor_s=1 + behind_s), {key: r for key, r in ratios.items() if r})
        found = project(Fix.BANDWIDTH_ISOLATED, side, Side(FAST))
        return found and round(1000 * (1 + behind_s - found.step_s), 6)

    assert projected(a2a=2.0, allreduce=1.0) == projected(a2a=2.0) == 82.5
    assert projected(a2a=1.0, allreduce=2.0) == projected(allreduce=2.0) == 27.5
    assert projected(a2a=2.0, allreduce=4.0) == 82.5 + 41.25
    assert projected(a2a=0.5) is None  # the model is faster: nothing to win
    assert projected() is None
    assert projected(a2a=2.0, allreduce=1.0, behind_s=0.2) == 82.5
    assert projected(a2a=2.0, behind_s=0.2) is None  # the other family was not compared and could win more


def test_a_wait_of_few_calls_is_no_payload():
    """A pipeline's broadcast waits for the other stage: of 220 ms exposed 110 are transfers, of which half is won."""
    carries = msgspec.structs.replace(
        family("alltoall", "445", 50.0), calls_per_layer=0.5
    )  # each stage has half of the layers
    waits = msgspec.structs.replace(family("broadcast", "561", 50.0), calls=1, calls_per_layer=0.025)
    stages = replace(SLOW, form=parse_form("tp1-usp2-pp2"), step_anchor_s=1.02, families=(carries, waits))
    found = project(Fix.PAYLOAD_HALVED, Side(stages), Side(FAST))
    assert (found.step_s, found.reverses) == (pytest.approx(1.02 - 0.055), True)
    behind = replace(stages, step_anchor_s=1.1)
    assert project(Fix.PAYLOAD_HALVED, Side(behind), Side(FAST)) is None  # the wait shrinks too, nobody knows by what
    only_waits = replace(stages, families=(waits,))
    assert project(Fix.PAYLOAD_HALVED, Side(only_waits), Side(FAST)) is None


def test_the_winners_bandwidth_ratio_is_its_own():
    loser = replace(SLOW, families=(family("alltoall", "445", 220.0),))
    winner = replace(FAST, families=(family("alltoall", "445", 80.0),))
    found = project(
        Fix.BANDWIDTH_ISOLATED, Side(loser, {("alltoall", "445"): 2.0}), Side(winner, {("alltoall", "445"): 1.0})
    )
    assert (found.step_s, found.against_step_s) == (pytest.approx(1.09), 1.0)  # the winner's agrees: nothing to fix


def test_removed_plumbing_leaves_communication_as_measured():
    found = project(Fix.PLUMBING_REMOVED, Side(SLOW), Side(FAST))
    assert (found.step_s, found.quantity, found.level) == (pytest.approx(1.14), "extra computing", 60)
    assert found.threshold is None  # 60 ms of plumbing cannot make up for 200 ms
    assert "This alone cannot reverse the order" in found.text
    assert (found.against_step_s, found.both_reverse) == (1.0, False)  # the winner computes least


def test_plumbing_is_what_a_form_computes_above_the_least_of_all():
    least = form("tp1-usp1-ag4", 1.3, StepParts(860, 400, 0, 40))
    found = project(Fix.PLUMBING_REMOVED, Side(SLOW), Side(FAST), least=least)  # 100 ms above, and 40 ms above
    assert (found.step_s, found.against_step_s) == (pytest.approx(1.1), pytest.approx(0.96))


def test_only_extra_computing_beyond_the_noise_can_be_removed():
    less = form("tp2-usp2", 1.2, StepParts(890, 220, 0, 20))
    little = form("tp2-usp2", 1.2, StepParts(910, 220, 0, 20))  # 10 ms; 1 % of 1810 ms is 18 ms
    on_ramp = form("tp2-usp2", 1.2, StepParts(None, 220, 0, None))
    found = [project(Fix.PLUMBING_REMOVED, Side(slow), Side(FAST)) for slow in (less, little, on_ramp)]
    assert found == [None, None, None]
    assert project(Fix.PLUMBING_REMOVED, Side(little), Side(FAST), noise_floor_pct=0.5).level == 10


def test_a_reversal_is_said_with_its_level_and_comes_first():
    near = replace(SLOW, step_anchor_s=1.05)
    found = all_projections(Side(near), Side(FAST))
    assert found[0].reverses
    assert [p.fix for p in found if not p.reverses] == []
    assert all(p.projection is True for p in found)
    assert found[0].threshold in (pytest.approx(170), pytest.approx(10))


def test_nothing_is_projected_without_a_capture():
    assert all_projections(Side(form("tp2-usp2", 1.2)), Side(FAST)) == ()


def contract(cards, links="UB", **workload):
    row = tuple(tuple("X" if a == b else links for b in cards) for a in cards)
    return contract_on(cards, row, workload=workload, tiers={"few": 4, "anchor": 10})


EIGHT = Measured(
    contract(range(8), "SYS"),
    [
        form("tp1-usp8", 0.625, StepParts(450, 150, 0, 20, exposed_share=0.24)),
        form("tp2-usp4", 0.7),
        form("tp8-usp1", 0.9),
    ],
)


def test_scaling_compares_the_same_arm_and_says_that_the_topology_changed():
    small = Measured(contract(range(4)), [FAST, form("tp2-usp2", 1.2)])
    found, _ = scaling(small, EIGHT)
    assert (found.arm, found.speedup, found.efficiency) == ("tp1-uspN", 1.6, 0.8)
    assert "Exposed communication: 8.0 % of the step, then 24.0 %, the first suspect." in found.text
    assert "The topology changes too: links UB against SYS." in found.text


def test_another_load_or_stack_forbids_scaling_statements():
    a, b = contract(range(4), seed=1), contract(range(8), seed=2)
    assert incomparable(a, b) == "workload.seed differ"
    assert scaling(Measured(a, [FAST]), Measured(b, [form("tp1-usp8", 0.6)])) == ()


def test_the_a_b_gate_says_how_its_form_scales_from_fewer_cards_and_what_is_comparable():
    noisy = replace(form("tp2-usp2", 1.2), usable=False, reason="dispersion 33.0 % is above 3 %")
    words = scaling_words(EIGHT, [Measured(contract(range(4)), [FAST, noisy])])
    assert words == {
        "tp1-usp8": "1.60 times as fast as tp1-usp4 on 4 cards, efficiency 80 % (same arm tp1-uspN and load; other "
        "cards, links UB, then SYS)",
        "tp2-usp4": "tp2-usp2 on 4 cards may not be ranked: dispersion 33.0 % is above 3 %",
    }
    other_load = Measured(contract(range(4), seed=2), [FAST])
    assert scaling_words(EIGHT, [other_load]) == {
        "tp1-usp8": "tp1-usp4 on 4 cards not comparable: workload.seed differ"
    }
    selection = selection_record({"tp1-usp8": 0.625, "tp2-usp4": 0.7, "tp8-usp1": 0.9})
    gates = evaluate(GateInputs(EIGHT.forms, scaling=words, selection=selection))
    texts = {gate.form: (gate.status, gate.text, gate.source) for gate in gates if gate.gate == "G6"}
    assert texts["tp1-usp8"] == (
        "passed",
        f"wins by 12.0 % (11.5 … 12.5 %, 2 starts each) over tp2-usp4; {words['tp1-usp8']}",
        "cells.csv, anchor tier, also of fewer cards",
    )
