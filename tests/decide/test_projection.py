"""Projections change one thing, keep the other side's measured costs, and say where the order reverses; scaling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contracts import contract_on

from anchormatrix.decide.captured import StepParts
from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.decide.projection import all_projections, project
from anchormatrix.decide.scaling import incomparable, scaling
from anchormatrix.records.form import parse_form
from anchormatrix.records.gates import Fix
from anchormatrix.records.session import SessionStatus


def form(name, step_s, parts=None):
    return FormEvidence(parse_form(name), SessionStatus.MEASURED, step_anchor_s=step_s, usable=True, parts=parts)


FAST = form("tp1-usp4", 1.0, StepParts(900, 80, 0, 20, exposed_share=0.08))
SLOW = form("tp2-usp2", 1.2, StepParts(960, 220, 0, 20, mask_bound=0.5, masked_ms=200))


def test_exposed_to_its_bound_saves_only_the_exposed_part():
    found = project(Fix.EXPOSED_TO_BOUND, SLOW, FAST)
    assert found.step_s == pytest.approx(1.2 - 0.1)
    assert not found.reverses
    assert found.threshold == pytest.approx(20)  # 220 ms exposed, 200 ms behind
    assert found.text.startswith(
        "Projection: with exposed communication at its masking bound, tp2-usp2 would take 1.100 s"
    )


def test_halved_payload_keeps_the_fixed_cost_that_the_sweep_shows():
    assert project(Fix.PAYLOAD_HALVED, SLOW, FAST).step_s == pytest.approx(1.2 - 0.11)
    assert project(Fix.PAYLOAD_HALVED, SLOW, FAST, halved_time_ratio=0.8).step_s == pytest.approx(1.2 - 0.044)


def test_isolated_bandwidth_helps_only_when_it_is_higher():
    assert project(Fix.BANDWIDTH_ISOLATED, SLOW, FAST) is None
    assert project(Fix.BANDWIDTH_ISOLATED, SLOW, FAST, isolated_over_implied=2).step_s == pytest.approx(1.2 - 0.11)
    assert project(Fix.BANDWIDTH_ISOLATED, SLOW, FAST, isolated_over_implied=0.5).step_s == pytest.approx(1.2)


def test_removed_plumbing_leaves_communication_as_measured():
    found = project(Fix.PLUMBING_REMOVED, SLOW, FAST)
    assert (found.step_s, found.quantity, found.level) == (pytest.approx(1.14), "extra computing", 60)
    assert found.threshold is None  # 60 ms of plumbing cannot make up for 200 ms
    assert "this alone cannot reverse the order" in found.text


def test_only_extra_computing_beyond_the_noise_can_be_removed():
    less = form("tp2-usp2", 1.2, StepParts(890, 220, 0, 20))
    little = form("tp2-usp2", 1.2, StepParts(910, 220, 0, 20))  # 10 ms; 1 % of 1810 ms is 18 ms
    on_ramp = form("tp2-usp2", 1.2, StepParts(None, 220, 0, None))
    assert [project(Fix.PLUMBING_REMOVED, slow, FAST) for slow in (less, little, on_ramp)] == [None, None, None]
    assert project(Fix.PLUMBING_REMOVED, little, FAST, noise_floor_pct=0.5).level == 10


def test_a_reversal_is_said_with_its_level_and_comes_first():
    near = replace(SLOW, step_anchor_s=1.05)
    found = all_projections(near, FAST)
    assert found[0].reverses
    assert [p.fix for p in found if not p.reverses] == []
    assert all(p.projection is True for p in found)
    assert found[0].threshold in (pytest.approx(170), pytest.approx(10))


def test_nothing_is_projected_without_a_capture():
    assert all_projections(form("tp2-usp2", 1.2), FAST) == ()


def contract(cards, links="UB", **workload):
    row = tuple(tuple("X" if a == b else links for b in cards) for a in cards)
    return contract_on(cards, row, workload=workload, tiers={"few": 4, "anchor": 10})


def test_scaling_compares_the_same_arm_and_says_that_the_topology_changed():
    small = (contract(range(4)), [FAST, form("tp2-usp2", 1.2)])
    large = (contract(range(8), "SYS"), [form("tp1-usp8", 0.625, StepParts(450, 150, 0, 20, exposed_share=0.24))])
    (found,) = scaling(small, large)
    assert (found.arm, found.speedup, found.efficiency) == ("tp1-uspN", 1.6, 0.8)
    assert "Exposed communication: 8.0 % of the step, then 24.0 %, the first suspect." in found.text
    assert "The topology changes too: links UB against SYS." in found.text


def test_another_load_or_stack_forbids_scaling_statements():
    a, b = contract(range(4), seed=1), contract(range(8), seed=2)
    assert incomparable(a, b) == "workload.seed differ"
    assert scaling((a, [FAST]), (b, [form("tp1-usp8", 0.6)])) == ()
