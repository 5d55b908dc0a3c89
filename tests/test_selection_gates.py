"""Seven gates from evidence, and what stays unexplained."""

from __future__ import annotations

import pytest

from anchormatrix.contract import Contract
from anchormatrix.forms import parse_form
from anchormatrix.selection.bounds import byte_bound
from anchormatrix.selection.evidence import FamilyTime, FormEvidence, StepParts, gather, masking_bound, step_parts
from anchormatrix.selection.figures import ModelFigures
from anchormatrix.selection.gates import GateInputs, evaluate, unexplained
from anchormatrix.selection.projection import Fix, project
from anchormatrix.selection.sweep import Sweep, SweepPoint

MODEL = ModelFigures(layers=10, heads=8, kv_heads=8, head_dim=100, sequence_tokens=1000)
PAIR = Contract("h", (0, 1), (("X", "UB"), ("UB", "X")), True, "d", "1", "1", "f", "1", {}, {})


def form(name, step_s, *, dispersion=0.5, windows=None, **more):
    windows = windows or {"1": step_s, "2": step_s}
    return FormEvidence(
        parse_form(name),
        "measured",
        step_few_s=step_s,
        step_anchor_s=step_s,
        dispersion_pct=dispersion,
        usable=True,
        windows=windows,
        source="w1, w2",
        **more,
    )


FAST = form("tp1-usp2", 1.0, parts=StepParts(800, 150, 0, 50))
SLOW = form("tp2-usp1", 1.1, parts=StepParts(830, 200, 0, 70))


def statuses(evidence, gate, **more):
    return {r.form: (r.status, r.text) for r in evaluate(GateInputs(evidence, **more)) if r.gate == gate}


def test_every_form_gets_every_gate_in_order():
    results = evaluate(GateInputs([FAST, SLOW]))
    assert [r.gate for r in results] == ["G1", "G2", "G3", "G4", "G5", "G6", "G7"] * 2
    assert results[0].as_dict()["name"] == "runs through"


def test_a_form_that_did_not_run_fails_g1_with_its_evidence_and_a_void_one_too():
    crashed = FormEvidence(parse_form("tp2-usp1"), "did_not_run", "out of memory on card 1", source="w1")
    void = FormEvidence(parse_form("tp1-usp1-cfg2"), "void", "sp_size is 1, 2 asked for", source="w1")
    found = statuses([crashed, void, FormEvidence(parse_form("tp1-usp1-ring2"))], "G1")
    assert found["tp2-usp1"] == ("failed", "did not run through: out of memory on card 1")
    assert found["tp1-usp1-cfg2"] == ("failed", "ran, but not as this form: sp_size is 1, 2 asked for")
    assert found["tp1-usp1-ring2"] == ("unknown", "not measured")


def test_memory_that_the_model_overstates_does_not_fail_a_form_that_ran():
    found = statuses([FAST], "G2", memory={"tp1-usp2": (70.0, 60.0, "")})
    assert found["tp1-usp2"][0] == "passed"
    assert "the model's figures are too high" in found["tp1-usp2"][1]


def sweep(us=1000.0):
    return Sweep(
        (SweepPoint("all_to_all", "UB", 2, 800_000, 1, us, 1.0), SweepPoint("all_to_all", "UB", 2, 1, 1, us, 1.0))
    )


def test_a_byte_bound_above_the_measured_step_contradicts_it():
    plausible = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(1000.0))  # 4 calls × 10 layers × 1 ms = 40 ms
    assert statuses([FAST], "G3", bounds={"tp1-usp2": plausible})["tp1-usp2"][0] == "passed"
    absurd = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(30_000.0))
    status, text = statuses([FAST], "G3", bounds={"tp1-usp2": absurd})["tp1-usp2"]
    assert status == "failed"
    assert "figures, sweep or form are not what they say" in text


def test_without_a_sweep_the_bytes_are_known_and_the_time_is_not():
    status, text = statuses([FAST], "G3", bounds={"tp1-usp2": byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, None)})[
        "tp1-usp2"
    ]
    assert status == "unknown"
    assert "1.6 MB same-domain and 0.0 MB cross-domain per layer and rank" in text


def test_computing_above_the_rivals_whole_step_is_a_veto():
    heavy = form("tp2-usp1", 1.2, parts=StepParts(1100, 50, 0, 50))
    assert statuses([FAST, SLOW], "G4") == {
        "tp1-usp2": ("passed", "computes least of the captured forms"),
        "tp2-usp1": ("passed", "computes 30.0 ms per step more than tp1-usp2"),
    }
    assert statuses([FAST, heavy], "G4")["tp2-usp1"][0] == "failed"


def test_masking_bound_decides_whether_a_slower_form_could_still_win():
    could = form("tp1-usp1-ag2", 1.1, parts=StepParts(830, 200, 0, 70, mask_bound=0.75, masked_ms=200, mask_chunks=4))
    cannot = form(
        "tp1-usp1-ag2", 1.4, parts=StepParts(1000, 200, 0, 200, mask_bound=0.75, masked_ms=200, mask_chunks=4)
    )
    assert statuses([FAST, could], "G5")["tp1-usp1-ag2"][0] == "passed"
    assert statuses([FAST, cannot], "G5")["tp1-usp1-ag2"] == (
        "failed",
        "exposed 200.0 ms, 50.0 ms at its bound with 4 chunks: 1.25 s per step; still above tp1-usp2's 1 s",
    )


def test_only_the_masked_familys_communication_can_be_hidden():
    parts = StepParts(500, 300, 0, 0, mask_bound=0.8, masked_ms=100)
    assert parts.exposed_at_bound_ms == pytest.approx(220)


def test_the_a_b_needs_two_windows_and_a_difference_beyond_the_noise():
    assert statuses([FAST, SLOW], "G6")["tp2-usp1"] == (
        "failed",
        "+10.0 %, +10.0 % against tp1-usp2 in the same windows, beyond the noise floor 1.0 %",
    )
    close = form("tp2-usp1", 1.01, dispersion=2.0)
    assert statuses([FAST, close], "G6")["tp2-usp1"][0] == "passed"
    once = form("tp1-usp2", 1.0, windows={"1": 1.0})
    assert statuses([once, SLOW], "G6")["tp1-usp2"] == ("unknown", "fastest in 1 window")
    assert statuses([FAST, SLOW], "G6")["tp1-usp2"] == ("passed", "fastest in 2 windows")


def test_a_form_that_may_not_be_ranked_says_why():
    cells = [
        {"form": "tp2-usp1", "tier": "anchor", "window": "all", "step_s": "1.5", "dispersion_pct": "0",
         "usable": "false", "reason": "cannot win: 50.0 % behind in window 1"}
    ]  # fmt: skip
    sessions = [{"form": "tp2-usp1", "window": 1, "status": "measured", "reason": ""}]
    evidence = [FAST, *gather([parse_form("tp2-usp1")], sessions, cells)]
    assert statuses(evidence, "G6")["tp2-usp1"] == (
        "unknown",
        "may not be ranked: cannot win: 50.0 % behind in window 1",
    )
    assert statuses(evidence, "G1")["tp2-usp1"] == ("passed", "runs through and proved its form")


def test_no_gates_evidence_ends_in_a_full_stop():
    results = evaluate(GateInputs([FAST, SLOW], projections=[project(Fix.PAYLOAD_HALVED, SLOW, FAST)]))
    assert [result.text for result in results if result.text.endswith(".")] == []


def test_the_projection_gate_says_in_short_what_the_list_of_projections_says_in_full():
    projection = project(Fix.PAYLOAD_HALVED, SLOW, FAST, halved_time_ratio=0.4)
    found = statuses([FAST, SLOW], "G7", projections=[projection])  # 120 of 200 ms saved, 100 ms behind
    assert found["tp2-usp1"] == (
        "passed",
        "with communication payload halved, 0.98 s per step: 2.0 % below tp1-usp2 (projection)",
    )
    assert found["tp1-usp2"] == ("passed", "tp2-usp1 would be faster with communication payload halved")
    assert "the order reverses when exposed communication per step falls below 100 ms" in projection.text
    numbers = {r.form: r.number for r in evaluate(GateInputs([FAST, SLOW], projections=[projection])) if r.gate == "G7"}
    assert numbers == pytest.approx({"tp1-usp2": 100, "tp2-usp1": 100})


def test_a_winner_that_no_projection_beats_names_the_nearest():
    projection = project(Fix.PAYLOAD_HALVED, SLOW, FAST, halved_time_ratio=0.6)  # 80 of 200 ms saved, 100 ms behind
    found = statuses([FAST, SLOW], "G7", projections=[projection])
    assert found["tp1-usp2"][1] == (
        "no projection reverses the order; nearest is tp2-usp1 with communication payload halved"
    )
    assert found["tp2-usp1"] == (
        "failed",
        "with communication payload halved, 1.02 s per step: 2.0 % above tp1-usp2 (projection)",
    )


def test_bandwidth_is_compared_only_at_equal_concurrency_and_kept_unexplained():
    bound = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(100.0))
    slow_in_model = form("tp1-usp2", 1.0, families=(FamilyTime("alltoall", "445", 40, 0.2),))  # 4 calls × 10 layers
    (found,) = unexplained([slow_in_model], {"tp1-usp2": bound})
    assert found.isolated_over_implied == pytest.approx(2.0)
    assert "the rest is unexplained" in found.text
    agrees = form("tp1-usp2", 1.0, families=(FamilyTime("alltoall", "445", 40, 0.104),))
    assert unexplained([agrees], {"tp1-usp2": bound}) == ()
    once_per_step = form("tp1-usp2", 1.0, families=(FamilyTime("alltoall", "561", 1, 0.001),))
    assert unexplained([once_per_step], {"tp1-usp2": bound}) == ()
    masked = byte_bound(parse_form("tp1-usp2+distributed-layerwise-offload"), MODEL, PAIR, sweep(100.0))
    assert unexplained([slow_in_model], {"tp1-usp2": masked}) == ()  # two communicators at once, swept with one


def attribution(chunks=1, exposed=40.0):
    rank = {
        "rank": 0,
        "stage_ms": 120,
        "computing_ms": 60.0,
        "exposed_ms": exposed,
        "overlapped_ms": 0.0,
        "free_ms": 20.0,
    }
    masking = {"rank": 0, "family": "alltoall", "communicator": "7", "chunks": chunks, "C_ms": 4.0, "F_ms": 8.0}
    family = {
        "family": "alltoall",
        "communicator": "7",
        "calls": 40,
        "sum_ms": 40.0,
        "mean_ms": 1.0,
        "union_over_sum": 1.0,
    }
    return {
        "steps": {"ranks": [{**rank, "rank": 1, "stage_ms": 110}, rank], "unprofiled_step_s": 0.1},
        "masking": {"ranks": [{**masking, "bound": 0.5, "measured": 0.2, "warnings": ["odd"]}]},
        "collectives": {"ranks": [{"rank": 0, "families": [family]}]},
    }


def test_captured_times_are_brought_back_to_the_unprofiled_step_and_exposed_seconds_stay():
    parts = step_parts(attribution())
    assert (parts.exposed_ms, parts.computing_ms, parts.free_ms) == pytest.approx((40, 45, 15))


def test_an_unmasked_forms_bound_is_that_of_masking_turned_on():
    parts = step_parts(attribution(), parse_form("tp1-usp2"), MODEL)
    assert (parts.mask_chunks, parts.mask_bound, parts.masked_ms) == (4, 0.75, 40.0)
    assert parts.mask_warnings == ()
    masked = step_parts(attribution(chunks=2), parse_form("tp1-usp2+mask2"), MODEL)
    assert (masked.mask_chunks, masked.mask_bound, masked.mask_warnings) == (2, 0.5, ("odd",))
    assert step_parts({"status": "refused"}) is None


def test_masking_bound_formula():
    assert masking_bound(8, 8, 4) == 0.75
    # C = 8, n = 4: c = 2, f = 1: 1 − (2 + 3 × 1 + 0.5) ÷ 8
    assert masking_bound(8, 4, 4) == pytest.approx(1 - 5.5 / 8)
    assert masking_bound(8, 8, 1) == 0.0


def test_evidence_is_gathered_from_stored_rows():
    cells = [
        {"form": "tp1-usp2", "tier": tier, "window": window, "step_s": step, "dispersion_pct": "0.4", "usable": "true"}
        for tier, window, step in (
            ("few", "all", "1.1"),
            ("anchor", "1", "1.0"),
            ("anchor", "2", "1.2"),
            ("anchor", "all", "1.05"),
        )
    ]
    sessions = [{"form": "tp1-usp2", "window": 1, "status": "measured", "reason": ""}]
    (found,) = gather([parse_form("tp1-usp2")], sessions, cells, {"tp1-usp2": attribution()})
    assert (found.step_few_s, found.step_anchor_s, found.usable) == (1.1, 1.05, True)
    assert found.windows == {"1": 1.0, "2": 1.2}
    assert found.exposed_share == pytest.approx(0.04 / 1.05)
