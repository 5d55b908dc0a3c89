"""Seven gates from evidence, and what stays unexplained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from contracts import contract_on
from measured import selection_record, session_record, verdict_record

from anchormatrix.decide.captured import StepParts, capture_inflation, step_parts
from anchormatrix.decide.evidence import FormEvidence, extra_computing, gather
from anchormatrix.decide.gates import GateInputs, evaluate
from anchormatrix.decide.theory.bounds import bandwidths, byte_bound, unexplained
from anchormatrix.decide.theory.projection import Side, project
from anchormatrix.measure.bandwidth.curve import Curves
from anchormatrix.records.attribution import (
    Attribution,
    AttributionStatus,
    Check,
    Collectives,
    Effect,
    Family,
    RankCollectives,
    StepRow,
    Steps,
)
from anchormatrix.records.bandwidth import SweepPoint
from anchormatrix.records.conclusions.cells import cell_of
from anchormatrix.records.conclusions.gates import Fix
from anchormatrix.records.conclusions.selection import Rival, Standing
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import Capture, CaptureStatus, SessionStatus
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.records.waits import MaskBound, Masking
from virtualhost.host.scenario_files import load_scenario
from virtualhost.host.split import Split
from virtualhost.step.steptable import captured, step_figures
from virtualhost.step.timeline import simulate_step

SCENARIOS = Path(__file__).resolve().parents[2] / "virtualhost" / "scenarios"
MODEL = ModelSettings(layers=10, heads=8, kv_heads=8, head_dim=100, sequence_tokens=1000, weights_gb=1)
PAIR = contract_on((0, 1))


def family(name, communicator, calls, mean_ms):
    return Family(
        family=name,
        communicator=communicator,
        calls=calls,
        calls_per_layer=None,
        sum_ms=calls * mean_ms,
        mean_ms=mean_ms,
        median_ms=mean_ms,
        max_ms=mean_ms,
        union_ms=calls * mean_ms,
        union_over_sum=1.0,
    )


def form(name, step_s, *, dispersion=0.5, windows=None, **more):
    windows = windows or {"1": step_s, "2": step_s}
    return FormEvidence(
        parse_form(name),
        SessionStatus.MEASURED,
        step_few_s=step_s,
        step_anchor_s=step_s,
        dispersion_pct=dispersion,
        usable=True,
        windows=windows,
        source="w1, w2",
        **more,
    )


PARTS = StepParts(800, 150, 0, 50)
FAST = form("tp1-usp2", 1.0, parts=PARTS)
SLOW = form("tp2-usp1", 1.1, parts=StepParts(830, 200, 0, 70))


def statuses(evidence, gate, **more):
    return {r.form: (r.status, r.text) for r in evaluate(GateInputs(evidence, **more)) if r.gate == gate}


def test_every_form_gets_every_gate_in_order():
    results = evaluate(GateInputs([FAST, SLOW]))
    assert [r.gate for r in results] == ["G1", "G2", "G3", "G4", "G5", "G6", "G7"] * 2
    assert results[0].name == "runs through"


def test_a_form_that_did_not_run_fails_g1_with_its_evidence_and_a_void_one_too():
    crashed = FormEvidence(parse_form("tp2-usp1"), SessionStatus.DID_NOT_RUN, "out of memory on card 1", source="w1")
    void = FormEvidence(parse_form("tp1-usp1-cfg2"), SessionStatus.VOID, "sp_size is 1, 2 asked for", source="w1")
    found = statuses([crashed, void, FormEvidence(parse_form("tp1-usp1-ring2"))], "G1")
    assert found["tp2-usp1"] == ("failed", "did not run through: out of memory on card 1")
    assert found["tp1-usp1-cfg2"] == ("failed", "ran, but not as this form: sp_size is 1, 2 asked for")
    assert found["tp1-usp1-ring2"] == ("unknown", "not measured")


def test_memory_that_the_model_overstates_does_not_fail_a_form_that_ran():
    found = statuses([FAST], "G2", memory={"tp1-usp2": (70.0, 60.0, "")})
    assert found["tp1-usp2"][0] == "passed"
    assert "the model's figures are too high" in found["tp1-usp2"][1]


def test_memory_that_the_cards_do_not_tell_is_unknown_and_said():
    words = "the cards do not tell their memory, so no form was checked against it"
    assert statuses([FAST], "G2", no_memory=words)["tp1-usp2"] == ("unknown", words)


def sweep(us=1000.0):
    return Curves(
        (SweepPoint("all_to_all", "UB", 2, 800_000, 1, us, 1.0), SweepPoint("all_to_all", "UB", 2, 1, 1, us, 1.0))
    )


def test_a_byte_bound_above_the_measured_step_contradicts_it():
    plausible = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(1000.0))  # 4 calls × 10 layers × 1 ms = 40 ms
    assert statuses([FAST], "G3", bounds={"tp1-usp2": plausible})["tp1-usp2"][0] == "passed"
    absurd = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(30_000.0))
    status, text = statuses([FAST], "G3", bounds={"tp1-usp2": absurd})["tp1-usp2"]
    assert status == "unknown"  # theory fails no form
    assert text.startswith(
        "the calls one after the other take 1200.0 ms by the sweep, more than the measured step of 1000.0 ms: they run "
        "at once, or figures, sweep or form are not what they say"
    )


def test_without_a_sweep_the_bytes_are_known_and_the_time_is_not():
    status, text = statuses([FAST], "G3", bounds={"tp1-usp2": byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, None)})[
        "tp1-usp2"
    ]
    assert status == "unknown"
    assert text.endswith("1.6 MB same-domain and 0.0 MB cross-domain per layer and rank")


def test_bytes_of_one_forward_are_told_with_the_forwards_of_a_step():
    guided = byte_bound(
        parse_form("tp1-usp2"), msgspec.structs.replace(MODEL, guidance_branches=2), PAIR, sweep(1000.0)
    )
    assert statuses([FAST], "G3", bounds={"tp1-usp2": guided})["tp1-usp2"][1] == (
        "1.6 MB same-domain and 0.0 MB cross-domain per layer and rank in one forward, of 2 that a step runs one after "
        "the other (guidance); about 80.0 ms of communication per step by the sweep, hidden or not"
    )


def test_memory_is_told_in_both_units():
    assert statuses([FAST], "G2", memory={"tp1-usp2": (60.0, 99.1, "")})["tp1-usp2"][1] == (
        "needs 60.0 GB (55.9 GiB) of 99.1 GB (92.3 GiB) usable per card"
    )


def test_computing_above_the_rivals_whole_step_is_a_veto():
    heavy = form("tp2-usp1", 1.2, parts=StepParts(1100, 50, 0, 50))
    assert statuses([FAST, SLOW], "G4") == {
        "tp1-usp2": ("passed", "computes least of the captured forms"),
        "tp2-usp1": ("passed", "computes 30.0 ms per step more than tp1-usp2, beyond the noise floor of 16.3 ms"),
    }
    assert statuses([FAST, heavy], "G4")["tp2-usp1"][0] == "failed"


def test_extra_computing_within_the_noise_is_no_difference():
    noisy = form("tp2-usp1", 1.1, dispersion=2.5, parts=StepParts(815, 200, 0, 70))  # 2.5 % of 1615 ms is 40 ms
    assert statuses([FAST, noisy], "G4")["tp2-usp1"] == (
        "passed",
        "computes 15.0 ms per step more than tp1-usp2, within the noise floor of 40.4 ms: no difference",
    )


def test_a_capture_without_a_step_to_deflate_it_by_is_compared_with_nothing():
    on_ramp = form("tp2-usp1", 1.1, parts=StepParts(None, 200, 0, None, doubt="the capture fell on the ramp"))
    assert statuses([FAST, on_ramp], "G4") == {
        "tp1-usp2": ("unknown", "no other form's computing to compare it with"),
        "tp2-usp1": ("unknown", "the capture fell on the ramp"),
    }


def test_the_masking_bound_says_whether_a_slower_form_could_still_win():
    could = form("tp1-usp1-ag2", 1.1, parts=StepParts(830, 200, 0, 70, mask_bound=0.75, masked_ms=200, mask_chunks=4))
    cannot = form(
        "tp1-usp1-ag2", 1.4, parts=StepParts(1000, 200, 0, 200, mask_bound=0.75, masked_ms=200, mask_chunks=4)
    )
    assert statuses([FAST, could], "G5")["tp1-usp1-ag2"][0] == "passed"
    assert statuses([FAST, cannot], "G5")["tp1-usp1-ag2"] == (
        "passed",  # a projection fails no form
        "exposed 200.0 ms, 50.0 ms at its bound with 4 chunks: would take 1.250 s per step (projection), "
        "still above tp1-usp2's measured 1.000 s",
    )


def test_only_the_masked_familys_communication_can_be_hidden():
    parts = StepParts(500, 300, 0, 0, mask_bound=0.8, masked_ms=100)
    assert parts.exposed_at_bound_ms == pytest.approx(220)
    half_hidden = StepParts(500, 300, 50, 0, mask_bound=0.8, mask_hidden=0.5, masked_ms=100)
    assert half_hidden.exposed_at_bound_ms == pytest.approx(270)


def selected(*rivals, decided=True):
    """A selection that tp1-usp2 leads; of each rival its form, standing, and difference with interval in percent."""
    return msgspec.structs.replace(
        selection_record({"tp1-usp2": 1.0}),
        decided=decided,
        rivals=tuple(
            Rival(form=name, standing=standing, behind_pct=pct, low_pct=low, high_pct=high, starts=2)
            for name, standing, pct, low, high in rivals
        ),
    )


@pytest.mark.parametrize(
    ("rival", "status", "interval", "text"),
    [
        ((Standing.BEHIND, 10.0, 9.5, 10.5), "failed", "10.0 % (9.5 … 10.5 %", ", beyond doubt"),
        (
            (Standing.SETTLED, 1.2, -0.5, 2.9),
            "passed",
            "1.2 % (-0.5 … 2.9 %",
            ": it may be the faster one, by no more than 1 %",
        ),
        (
            (Standing.OPEN, 1.0, -2.0, 4.0),
            "unknown",
            "1.0 % (-2.0 … 4.0 %",
            ": it may still be faster by more than 1 %",
        ),
        ((Standing.SETTLED, 0.1, -0.4, 0.6), "passed", "0.1 % (-0.4 … 0.6 %", ": no difference, it lies within 1 %"),
    ],
)
def test_the_a_b_is_the_selections(rival, status, interval, text):
    selection = selected(("tp2-usp1", *rival))
    found = statuses([FAST, SLOW], "G6", selection=selection)
    assert found["tp2-usp1"] == (
        status,
        f"{interval}, 2 starts each) behind tp1-usp2 in the same windows{text}",
    )
    assert found["tp1-usp2"][0] == "passed"
    undecided = statuses([FAST, SLOW], "G6", selection=selected(("tp2-usp1", Standing.OPEN, 1, -2, 4), decided=False))
    assert undecided["tp1-usp2"][0] == "unknown"
    assert statuses([FAST, SLOW], "G6")["tp1-usp2"] == ("unknown", "nothing was selected")


def test_a_form_that_may_not_be_ranked_says_why():
    why = "cannot win: 50.0 % behind in window 1"
    cells = [cell_of("c2-x", "tp2-usp1", "anchor", "all", [1.5], 0.0, why)]
    sessions = [
        session_record("tp2-usp1", 1),
        session_record("tp2-usp1", 2, "skipped", reason="it cannot win any more"),
    ]
    evidence = [FAST, *gather([parse_form("tp2-usp1")], sessions, cells)]
    assert statuses(evidence, "G6")["tp2-usp1"] == (
        "unknown",
        "may not be ranked: cannot win: 50.0 % behind in window 1",
    )
    assert statuses(evidence, "G1")["tp2-usp1"] == ("passed", "runs through and proved its form")
    assert evidence[1].source == "w1"


def test_no_gates_evidence_ends_in_a_full_stop():
    results = evaluate(GateInputs([FAST, SLOW], projections=[project(Fix.PAYLOAD_HALVED, Side(SLOW), Side(FAST))]))
    assert [result.text for result in results if result.text.endswith(".")] == []


def test_the_projection_gate_says_in_short_what_the_list_of_projections_says_in_full():
    projection = project(Fix.PAYLOAD_HALVED, Side(SLOW, halved_time_ratio=0.4), Side(FAST))
    found = statuses([FAST, SLOW], "G7", projections=[projection])  # 120 of 200 ms saved, 100 ms behind
    assert found["tp2-usp1"] == (
        "passed",
        "with communication payload halved, 0.98 s per step: 2.0 % below tp1-usp2; "
        "with the same for tp1-usp2 the order stays (projection)",  # its 150 ms become 75: 0.925 s
    )
    assert found["tp1-usp2"] == (
        "passed",
        "tp2-usp1 would be faster with communication payload halved; with the same for tp1-usp2 the order stays",
    )
    assert (
        "The order reverses when exposed communication per step of tp2-usp1 alone falls below 100.0 ms "
        "(measured 200.0 ms)" in projection.text
    )
    numbers = {r.form: r.number for r in evaluate(GateInputs([FAST, SLOW], projections=[projection])) if r.gate == "G7"}
    assert numbers == pytest.approx({"tp1-usp2": 100, "tp2-usp1": 100})


def test_a_winner_that_no_projection_beats_names_the_nearest():
    # 80 of 200 ms saved, 100 ms behind
    projection = project(Fix.PAYLOAD_HALVED, Side(SLOW, halved_time_ratio=0.6), Side(FAST))
    found = statuses([FAST, SLOW], "G7", projections=[projection])
    assert found["tp1-usp2"][1] == (
        "no projection reverses the order; nearest is tp2-usp1 with communication payload halved"
    )
    assert found["tp2-usp1"] == (
        "passed",
        "with communication payload halved, 1.020 s per step: 2.0 % above tp1-usp2; "
        "with the same for tp1-usp2 the order stays (projection)",
    )


def test_bandwidth_is_compared_only_at_equal_concurrency_and_kept_unexplained():
    bound = byte_bound(parse_form("tp1-usp2"), MODEL, PAIR, sweep(100.0))
    slow_in_model = form(
        "tp1-usp2", 1.0, parts=PARTS, families=(family("alltoall", "445", 40, 0.2),)
    )  # 4 calls × 10 layers
    (found,) = unexplained(bandwidths([slow_in_model], {"tp1-usp2": bound}))
    assert found.isolated_over_implied == pytest.approx(2.0)
    # 0.8 MB of which half stays: 0.4 MB on the wire in 0.2 ms
    assert (found.implied_gb_s, found.isolated_gb_s) == pytest.approx((2.0, 4.0))
    assert "2.00 GB/s on the wire in the model and 4.00 GB/s in isolation" in found.text
    assert "the rest is unexplained" in found.text
    agrees = form("tp1-usp2", 1.0, parts=PARTS, families=(family("alltoall", "445", 40, 0.104),))
    assert unexplained(bandwidths([agrees], {"tp1-usp2": bound})) == ()
    once_per_step = form("tp1-usp2", 1.0, parts=PARTS, families=(family("alltoall", "561", 1, 0.001),))
    assert unexplained(bandwidths([once_per_step], {"tp1-usp2": bound})) == ()
    masked = byte_bound(parse_form("tp1-usp2+distributed-layerwise-offload"), MODEL, PAIR, sweep(100.0))
    assert bandwidths([slow_in_model], {"tp1-usp2": masked}) == ()  # two communicators at once, swept with one
    noisy = replace(slow_in_model, cell_doubt="dispersion 33.0 % is above 3 %")
    assert bandwidths([noisy], {"tp1-usp2": bound}) == ()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, ""),
        ({"capture": Capture(status=CaptureStatus.ON_RAMP, request=2)}, "the capture fell on the ramp"),
        (
            {"effect": Effect(ok=False, checks=(Check("usp2", False, "0 calls of 40"),))},
            "what was captured is not this form (void)",
        ),
    ],
)
def test_a_capture_says_why_it_may_not_be_read(facts, why):
    found = evidence_of({"tp1-usp2": msgspec.structs.replace(captured_step(600, 100, 0, 0.6), **facts)})
    assert (found["tp1-usp2"].capture_doubt, found["tp1-usp2"].captured is None) == (why, bool(why))


def test_a_capture_in_a_cell_that_may_not_be_read_may_not_be_read_either():
    """The repeats of the captured window scatter by 30 %; the selection ranks the form all the same."""
    cells = [
        cell_of("c2-x", "tp1-usp2", tier, window, values, spread, why)
        for tier, window, values, spread, why in (
            ("few", "1", [1.0, 1.3], 26.0, "2 of 3 repeats"),
            ("few", "2", [1.0, 1.0], 0.0, "2 of 3 repeats"),
            ("few", "all", [1.0, 1.3, 1.0, 1.0], 30.0, "window 1: 2 of 3 repeats; window 2: 2 of 3 repeats"),
            ("anchor", "all", [1.0, 1.2], 18.0, "dispersion 18.0 % of 2 repeats is above 3 %"),
        )
    ]
    verdict = verdict_record(selection=selection_record({"tp1-usp2": 1.0, "tp2-usp1": 1.1}))

    def gathered(window):
        capture = msgspec.structs.replace(captured_step(600, 100, 0, 0.6), window=window)
        (found,) = gather([], [session_record("tp1-usp2")], cells, {"tp1-usp2": capture}, verdict=verdict)
        return found

    noisy, quiet = gathered(1), gathered(2)
    assert (noisy.ranked_s, noisy.captured, noisy.exposed_share) == (1.1, None, None)
    assert noisy.capture_doubt == "the cell it was captured in may not be read: dispersion 26.0 % is above 3 %"
    assert (quiet.capture_doubt, quiet.exposed_share) == ("", 0.1)
    assert quiet.drift_doubt == "anchor: dispersion 18.0 % of 2 repeats is above 3 %"


def test_a_form_without_heads_or_keys_to_exchange_has_nothing_to_mask():
    assert statuses([FAST, SLOW], "G5") == {
        "tp1-usp2": ("unknown", "no masked family in its capture"),
        "tp2-usp1": ("passed", "nothing that chunks of heads could hide"),
    }


READ = {"parts": replace(PARTS, mask_bound=0.75, masked_ms=150, mask_chunks=4)}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"parts": None}, "no capture of this form"),
        ({"parts": replace(READ["parts"], doubt="the capture fell on the ramp")}, "the capture fell on the ramp"),
        (
            {"cell_doubt": "dispersion 33.0 % is above 3 %"},
            "the cell it was captured in may not be read: dispersion 33.0 % is above 3 %",
        ),
        (
            {"usable": False, "reason": "dispersion 33.0 % is above 3 %"},
            "may not be ranked: dispersion 33.0 % is above 3 %",
        ),
    ],
)
def test_evidence_that_may_not_be_read_leaves_every_gate_on_a_capture_unknown(changes, why):
    """Ramp, noise, no capture: each gate says the same reason, and nothing is projected."""
    doubtful = replace(SLOW, **{**READ, **changes})
    found = {r.gate: (r.status, r.text) for r in evaluate(GateInputs([FAST, doubtful])) if r.form == "tp2-usp1"}
    if why:
        assert {found["G4"], found["G5"], found["G7"]} == {("unknown", why)}
        assert project(Fix.PAYLOAD_HALVED, Side(doubtful), Side(FAST)) is None
    else:
        assert (found["G4"][0], found["G5"][0]) == ("passed", "passed")
        assert project(Fix.PAYLOAD_HALVED, Side(doubtful), Side(FAST)) is not None


def test_memory_by_the_models_figures_alone_fails_no_form_that_was_not_tried():
    untried = FormEvidence(parse_form("tp2-usp1"))
    crashed = FormEvidence(parse_form("tp2-usp1"), SessionStatus.DID_NOT_RUN, "out of memory on card 1", source="w1")
    needs = {"tp2-usp1": (70.0, 60.0, "")}
    assert statuses([untried], "G2", memory=needs)["tp2-usp1"][0] == "unknown"
    assert statuses([crashed], "G2", memory=needs)["tp2-usp1"][0] == "failed"


def step_row(rank, stage_ms, computing_ms, exposed_ms, free_ms):
    return StepRow(
        rank=rank,
        stage_ms=stage_ms,
        computing_ms=computing_ms,
        exposed_ms=exposed_ms,
        overlapped_ms=0.0,
        communication_ms=exposed_ms,
        free_ms=free_ms,
        bubble_ms=0.0,
        preparing_ms=0.0,
    )


def analysed(rows, unprofiled_s, exposed_share, **analyses):
    steps = Steps(
        step=1,
        why="",
        ranks=tuple(rows),
        slowest_rank=0,
        spread_pct=0.0,
        unprofiled_step_s=unprofiled_s,
        exposed_share=exposed_share,
        agreement=None,
        all=(),
        whole_trace=(),
    )
    return Attribution(contract=None, form=None, status=AttributionStatus.ANALYSED, steps=steps, **analyses)


def attribution(chunks=1, achievement=None, **timed):
    masking = MaskBound(
        rank=0,
        family="alltoall",
        communicator="7",
        chunks=chunks,
        c_total_ms=4.0,
        f_total_ms=8.0,
        c_ms=4.0 / chunks,
        f_ms=8.0 / chunks,
        c_over_f=0.5,
        ideal=0.5,
        bound=0.5,
        estimate=0.5,
        measured=0.2,
        measured_family=None,
        under_attention=0.1,
        achievement=achievement,
        exposed_ms=40.0,
        warnings=("odd",),
        **timed,
    )
    rank = RankCollectives(rank=0, families=(family("alltoall", "7", 40, 1.0),), overlap=(), streams=())
    return analysed(
        [step_row(1, 110, 60.0, 40.0, 20.0), step_row(0, 120, 60.0, 40.0, 20.0)],
        0.1,
        0.4,
        masking=Masking(ranks=(masking,)),
        collectives=Collectives(ranks=(rank,), rows_read=1, rows_unusable=0, unusable_causes={}, notes=()),
    )


def test_captured_times_are_brought_back_to_the_unprofiled_step_and_exposed_seconds_stay():
    parts = step_parts(attribution(), inflation=capture_inflation([attribution()]))  # (60 + 20) ÷ (100 − 40)
    assert (parts.exposed_ms, parts.computing_ms, parts.free_ms) == pytest.approx((40, 45, 15))


def captured_step(computing_ms, exposed_ms, free_ms, unprofiled_s):
    row = step_row(0, computing_ms + exposed_ms + free_ms, computing_ms, exposed_ms, free_ms)
    return analysed([row], unprofiled_s, 0.1)


def evidence_of(attributions):
    sessions = [session_record(name) for name in attributions]
    cells = [cell_of("c2-x", name, tier, "all", [1.0], 0.4) for name in attributions for tier in ("few", "anchor")]
    return {item.form.name: item for item in gather([], sessions, cells, attributions)}


def test_a_capture_on_the_ramp_is_never_deflated_by_the_others_factor():
    found = evidence_of({"tp1-usp2": captured_step(600, 100, 0, 0.6), "tp2-usp1": captured_step(660, 100, 0, None)})
    assert found["tp1-usp2"].parts.computing_ms == pytest.approx(500)
    assert (found["tp2-usp1"].parts.computing_ms, found["tp2-usp1"].parts.free_ms) == (None, None)
    assert found["tp2-usp1"].parts.exposed_ms == 100


def test_a_captured_step_that_was_slow_by_itself_speaks_for_nothing():
    """The profiler stretches the second by 1.2 and the first by 2: its first step is unlike its timed ones."""
    found = evidence_of({"tp1-usp2": captured_step(1000, 100, 0, 0.6), "tp2-usp1": captured_step(660, 150, 0, 0.7)})
    slow = found["tp1-usp2"]
    why = "the captured step is not like the timed ones"
    assert (slow.capture_doubt, slow.parts.computing_ms, slow.captured) == (why, None, None)
    assert (found["tp2-usp1"].capture_doubt, found["tp2-usp1"].parts.computing_ms) == ("", pytest.approx(550))
    assert statuses([slow], "G4")["tp1-usp2"] == ("unknown", why)
    assert project(Fix.PAYLOAD_HALVED, Side(slow), Side(FAST)) is None


def test_noise_of_the_timed_step_does_not_become_extra_computing():
    """Both compute alike; 20 ms of noise in one form's timed step are not 20 ms of computing."""
    same = {"tp1-usp2": captured_step(1200, 100, 0, 1.1), "tp2-usp1": captured_step(1200, 100, 0, 1.12)}
    found = evidence_of(same)
    assert extra_computing(found["tp2-usp1"], found["tp1-usp2"], 1.0).extra_ms == pytest.approx(0.0)


HEALTHY = load_scenario(SCENARIOS / "healthy.yaml").host_model()
PAIRS = {2: ("tp1-usp2", "tp2-usp1"), 4: ("tp1-usp4", "tp2-usp2"), 8: ("tp1-usp8", "tp2-usp4")}
TRUE_EXTRA_MS = {2: 60.2, 4: 124.0, 8: 57.5}


def true_step(name):
    parsed = parse_form(name)
    return simulate_step(HEALTHY, Split(tp=parsed.tp, usp=parsed.usp), tuple(range(parsed.cards)))


@pytest.mark.parametrize(
    ("cards", "timed_s", "tolerance"),
    [
        (2, (9.6944, 10.3821), 0.01),
        (4, (4.9476, 5.4752), 0.01),
        (8, (2.6720, 2.9887), 0.01),
        (4, (5.3, 5.4752), 0.05),  # few steps that are slower than the captured one
    ],
)
def test_noise_of_the_timed_steps_leaves_the_default_hosts_extra_computing_true(cards, timed_s, tolerance):
    attributions, truth = {}, []
    for name, step_s in zip(PAIRS[cards], timed_s, strict=True):
        timeline = true_step(name)
        truth.append(step_figures(timeline, 0).computing_ns / 1e6)
        seen = step_figures(captured(timeline, 1.3), 0)
        attributions[name] = captured_step(*(ns / 1e6 for ns in (seen[0], seen[1], seen.free_ns)), step_s)
    assert truth[1] - truth[0] == pytest.approx(TRUE_EXTRA_MS[cards], abs=0.1)
    found = evidence_of(attributions)
    one, other = (found[name] for name in PAIRS[cards])
    assert extra_computing(other, one, 1.0).extra_ms == pytest.approx(TRUE_EXTRA_MS[cards], rel=tolerance)


@pytest.mark.parametrize(
    ("cards", "one", "other"),
    [  # of a run of the default host: computing, exposed and idle ms captured, then s timed
        (2, (12111.4, 341.6, 11.0, 9.6944), (12222.8, 1013.0, 9.3, 10.3821)),
        (4, (6066.3, 257.6, 11.0, 4.9476), (6238.5, 682.3, 11.0, 5.4752)),
        (8, (3074.1, 321.7, 11.1, 2.6720), (3105.4, 571.8, 10.9, 2.9887)),
    ],
)
def test_noise_of_the_captured_steps_stays_below_the_floor(cards, one, other):
    found = evidence_of({name: captured_step(*step) for name, step in zip(PAIRS[cards], (one, other), strict=True)})
    extra = extra_computing(*(found[name] for name in reversed(PAIRS[cards])), 1.0)
    assert abs(extra.extra_ms - TRUE_EXTRA_MS[cards]) < extra.floor_ms
    assert extra.differs == (cards == 4)


def test_an_unmasked_forms_bound_is_that_of_masking_turned_on():
    parts = step_parts(attribution(), parse_form("tp1-usp2"), MODEL)
    assert (parts.mask_chunks, parts.mask_bound, parts.masked_ms) == (4, 0.75, 40.0)
    masked = step_parts(attribution(chunks=2), parse_form("tp1-usp2+mask2"), MODEL)
    assert (masked.mask_chunks, masked.mask_bound, masked.mask_hidden, masked.mask_doubt) == (2, 0.5, 0.1, "")
    assert step_parts(attribution(chunks=2, achievement=1.1), parse_form("tp1-usp2+mask2"), MODEL).mask_doubt == "odd"
    refused = Attribution(contract=None, form=None, status=AttributionStatus.REFUSED, reason="no capture")
    assert step_parts(refused) is None


def test_attention_hides_only_as_much_as_it_does_without_the_profiler():
    timed = attribution(f_timed_ms=2.0)  # captured 8 ms, C is 4 ms
    parts = step_parts(timed, parse_form("tp1-usp2"), MODEL)
    assert parts.mask_bound == 0.5
    masked = attribution(chunks=2, bound_timed=0.25)
    assert step_parts(masked, parse_form("tp1-usp2+mask2"), MODEL).mask_bound == 0.25


def test_evidence_is_gathered_from_stored_rows():
    cells = [
        cell_of("c2-x", "tp1-usp2", tier, window, [step_s], 0.4)
        for tier, window, step_s in (
            ("few", "all", 1.1),
            ("anchor", "1", 1.0),
            ("anchor", "2", 1.2),
            ("anchor", "all", 1.05),
        )
    ]
    sessions = [session_record("tp1-usp2")]
    (found,) = gather([parse_form("tp1-usp2")], sessions, cells, {"tp1-usp2": attribution()})
    assert (found.step_few_s, found.step_anchor_s, found.usable) == (1.1, 1.05, True)
    assert found.windows == {"1": 1.0, "2": 1.2}
    assert found.exposed_share == 0.4  # the attribution's own figure, also where the anchor's step is another
