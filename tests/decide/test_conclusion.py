"""The conclusion's sentence: a winner with its conditions, no difference, or not decidable because of something."""

from __future__ import annotations

from contracts import contract_on, store_contract
from measured import selection_record, smoke_record, verdict_record
from msgspec.structs import replace

from anchormatrix.decide.captured import StepParts
from anchormatrix.decide.conclusion import DecisionInputs, decide
from anchormatrix.decide.deciding import overall
from anchormatrix.decide.evidence import FormEvidence
from anchormatrix.decide.gates import GATES
from anchormatrix.decide.group_state import GroupState, group_state
from anchormatrix.decide.theory.projection import Side, all_projections
from anchormatrix.records.conclusions.decision import Trigger
from anchormatrix.records.conclusions.gates import Gate, GateStatus, Unexplained
from anchormatrix.records.conclusions.verdict import Drift, NotRun
from anchormatrix.records.form import parse_form
from anchormatrix.records.session import SessionStatus
from anchormatrix.records.settings.things import ModelSettings
from anchormatrix.records.smoke import Finding, FindingKind
from anchormatrix.store.codec import write_record


def form(name, step_s, parts=None, windows=("1", "2"), dispersion=0.5):
    return FormEvidence(
        parse_form(name),
        SessionStatus.MEASURED,
        step_few_s=step_s,
        step_anchor_s=step_s,
        dispersion_pct=dispersion,
        usable=True,
        windows=dict.fromkeys(windows, step_s),
        parts=parts,
    )


FAST = form("tp1-usp4", 1.0, StepParts(900, 80, 0, 20))
SLOW = form("tp2-usp2", 1.1, StepParts(920, 160, 0, 20))
OPEN = verdict_record(
    "unstable",
    None,
    cure="fix the noise first",
    selection=selection_record({"tp1-usp4": 1.0, "tp2-usp2": 1.01}, error_pct=3, decided=False),
)
WON = verdict_record(reason="both tiers agree")
TIED = verdict_record(
    winner=None,
    tied_with=("tp1-usp4", "tp2-usp2"),
    reason="tie",
    selection=selection_record({"tp1-usp4": 1.0, "tp2-usp2": 1.005}),
)


def test_the_template_is_filled_from_measurements():
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], projections=all_projections(Side(SLOW), Side(FAST))))
    assert found.sentence == (
        "On 4 cards tp1-usp4 wins by 10.0 % (9.5 … 10.5 %, 2 starts each) over tp2-usp2 at the anchor tier; when "
        "exposed communication per step of tp2-usp2 is above 60.0 ms (projected), tp1-usp4 wins, else tp2-usp2; "
        "measured 160.0 ms, so tp1-usp4 by 10.0 %. Reverses when exposed communication per step of tp2-usp2 falls to "
        "60.0 ms; communication payload halved would give 80.0 ms, and with the same for tp1-usp4 the order stays "
        "(projection)."
    )
    assert (found.outcome, found.runner_up, found.confidence) == ("winner", "tp2-usp2", "high")
    assert [round(pct, 6) for pct in (found.margin_pct, found.margin_low_pct, found.margin_high_pct)] == [10, 9.5, 10.5]
    assert found.basis == (
        "2 forms at the anchor tier, 2 windows, largest dispersion 0.5 %; "
        "the few-step ranking agrees and may be used next time"
    )


def test_without_a_capture_nothing_is_claimed_about_conditions():
    bare = [form("tp1-usp4", 1.0), form("tp2-usp2", 1.1)]
    found = decide(DecisionInputs(4, "c4-x", WON, bare))
    assert "nothing measured says on which variable tp1-usp4 against tp2-usp2 depends" in found.conditions[0]
    assert found.sentence.endswith("Nothing measured tells at which level it would reverse.")
    assert found.reversal == ()


def test_the_gathering_form_depends_on_grouped_queries():
    gather = form("tp1-usp2-ag2", 1.1)
    model = ModelSettings(layers=10, heads=8, kv_heads=8, head_dim=64, sequence_tokens=1024, weights_gb=1)
    won = verdict_record(selection=selection_record({"tp1-usp4": 1.0, "tp1-usp2-ag2": 1.1}))
    found = decide(DecisionInputs(4, "c4-x", won, [form("tp1-usp4", 1.0), gather], model=model))
    assert found.conditions == (
        "When grouped-query attention shrinks K and V, tp1-usp2-ag2 sends less than tp1-usp4, else it does not; "
        "all 8 heads have their own K and V here; measured, tp1-usp4 is faster.",
    )


def test_no_difference_is_a_full_answer():
    found = decide(DecisionInputs(4, "c4-x", TIED, [FAST, form("tp2-usp2", 1.005)]))
    assert (found.outcome, found.winner, found.tied_with) == ("no_difference", None, ("tp1-usp4", "tp2-usp2"))
    assert found.sentence == (
        "On 4 cards there is no difference between tp1-usp4 and tp2-usp2: 0.5 % (0.0 … 1.0 %, 2 starts each) apart, "
        "below the 1 % that counts as one. Any of them may be used; choose by memory or simplicity."
    )
    assert found.confidence == "high"


def test_not_decidable_says_why_and_what_to_do():
    found = decide(DecisionInputs(4, "c4-x", OPEN, [FAST, SLOW]))
    why = (
        "On 4 cards no form can be chosen, because tp1-usp4 leads tp2-usp2 by 1.0 % (-2.0 … 4.0 %, 2 starts each); "
        "tp2-usp2 may still be faster by more than 1 %, because starts of one form differ by 0.2 % (standard "
        "deviation, 2 degrees of freedom). What to do: "
    )
    assert found.sentence == f"{why}fix the noise first."
    assert (found.outcome, found.confidence) == ("not_decidable", "none")
    quiet = verdict_record(winner=None, selection=OPEN.selection)
    assert decide(DecisionInputs(4, "c4-x", quiet, [FAST, SLOW])).sentence == (
        f"{why}start the forms that are still open more often, as matrix.design adaptive does by itself."
    )


def test_a_form_without_a_number_is_an_unknown_with_its_reason():
    gone = verdict_record("incomplete", did_not_run=(NotRun("tp4-usp1", "void: offload is dead"),))
    found = decide(DecisionInputs(4, "c4-x", gone, [FAST, SLOW]))
    assert (found.confidence, found.unknowns[0]) == ("low", "tp4-usp1 is not ranked: void: offload is dead.")


def test_a_form_that_cannot_be_ruled_out_is_an_unknown_and_lowers_the_confidence():
    left = "tp4-usp1 is not ranked (window 1: 2 of 3 repeats); it was 7.0 % faster in 2 of 3 repeats"
    found = decide(DecisionInputs(4, "c4-x", verdict_record(left_out=(left,)), [FAST, SLOW]))
    assert (found.winner, found.confidence, found.unknowns[0]) == ("tp1-usp4", "low", f"{left}.")


def test_a_faster_form_that_left_the_matrix_is_named_first():
    left = form("tp4-usp1", 0.8)
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], left_behind=[left, form("tp1-usp2-cfg2", 1.05)]))
    said = "Not in the matrix any more, but measured faster under this contract: tp4-usp1 by 25.0 % (0.8 s per step)."
    assert found.conditions[0] == said
    assert "; not in the matrix any more, but measured faster" in found.sentence
    assert (found.winner, found.runner_up) == ("tp1-usp4", "tp2-usp2")
    undecided = decide(DecisionInputs(4, "c4-x", TIED, [FAST, form("tp2-usp2", 1.005)], left_behind=[left]))
    assert undecided.conditions == (said,)
    assert undecided.sentence.endswith(said)


def test_a_slower_form_that_left_the_matrix_is_not_spoken_of():
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], left_behind=[form("tp4-usp1", 1.2)]))
    assert found == decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW]))


def test_unknowns_are_listed_with_what_would_settle_them():
    gap = Unexplained(
        form="tp1-usp4",
        family="alltoall",
        communicator="445",
        implied_gb_s=10.0,
        isolated_gb_s=20.0,
        concurrency=1,
        text="the rest is unexplained",
        isolated_over_implied=2.0,
    )
    open_gate = Gate(
        name=GATES["G3"],
        gate="G3",
        form="tp1-usp4",
        status=GateStatus.UNKNOWN,
        number=None,
        unit="ms/step",
        source="",
        text="all_to_all was not swept over UB links; 3 MB",
    )
    found = decide(
        DecisionInputs(
            4,
            "c4-x",
            WON,
            [FAST, SLOW],
            gates=[open_gate],
            unexplained=[gap],
            skipped={"tp4-usp1": "cannot win any more"},
        )
    )
    assert found.unknowns == (
        "the rest is unexplained",
        "tp4-usp1 was not measured further: cannot win any more.",
        "G3 bytes over links (all_to_all was not swept over UB links) of tp1-usp4.",
    )


def confidence(verdict):
    return decide(DecisionInputs(4, "c", verdict, [FAST, SLOW])).confidence


def test_confidence_is_high_only_when_every_window_agrees_and_the_margin_is_clear():
    assert confidence(WON) == "high"
    assert confidence(verdict_record(windows_agree=False)) == "moderate"
    assert confidence(verdict_record(selection=selection_record(starts=1))) == "moderate"
    narrow = selection_record({"tp1-usp4": 1.0, "tp2-usp2": 1.019}, error_pct=0.1)
    assert confidence(verdict_record(selection=narrow)) == "moderate"
    assert confidence(verdict_record("unstable")) == "moderate"


def test_a_coarser_noise_floor_asks_for_a_larger_margin():
    coarse = replace(selection_record({"tp1-usp4": 1.0, "tp2-usp2": 1.05}), zone_pct=3.0)
    assert confidence(verdict_record(selection=coarse)) == "moderate"


def test_confidence_is_low_when_a_window_drifts_or_a_form_is_missing():
    assert confidence(verdict_record(window_drift=(Drift("tp1-usp4", "few", 5.0, True),))) == "low"
    assert confidence(verdict_record("incomplete")) == "low"


def test_cards_of_unknown_speed_lower_the_confidence_and_are_named_first():
    group = GroupState(doubts=("Whether cards 0–7 are as fast as they should be.",), links="Not one domain.")
    found = decide(DecisionInputs(4, "c", WON, [FAST, SLOW], group=group))
    assert (found.winner, found.confidence) == ("tp1-usp4", "moderate")
    assert found.unknowns[0] == "Whether cards 0–7 are as fast as they should be."
    assert found.conditions[-1] == "Not one domain."
    assert decide(DecisionInputs(4, "c", WON, [FAST, SLOW])).confidence == "high"


def test_damaged_cards_decide_nothing():
    group = GroupState(damage="cards 0,1 are in the residue state (smoke of c2-x)")
    found = decide(DecisionInputs(4, "c", WON, [FAST, SLOW], group=group))
    assert (found.outcome, found.winner, found.confidence) == ("not_decidable", None, "none")
    assert found.sentence == (
        "On 4 cards no form can be chosen, because cards 0,1 are in the residue state (smoke of c2-x). "
        "What to do: reset the driver or use another group, then smoke it again."
    )


PAIR = contract_on((0, 1))
LINKS = tuple(tuple("X" if a == b else "UB" if a // 2 == b // 2 else "SYS" for b in range(4)) for a in range(4))
QUAD = contract_on((0, 1, 2, 3), LINKS, one_domain=False)


def test_the_state_of_a_group_is_read_from_its_smoke_and_those_inside_it(tmp_path):
    assert group_state(tmp_path, PAIR).doubts == (
        "Whether cards 0,1 are as fast as they should be: no smoke of them is stored; "
        "smoke.expected_step_s would settle it.",
    )
    write_record(tmp_path / QUAD.id / "smoke.json", smoke_record(QUAD.id, "unverified"))
    assert group_state(tmp_path, QUAD) == GroupState(
        doubts=(
            "Whether cards 0–3 are as fast as they should be: their smoke had nothing to compare with (unverified); "
            "smoke.expected_step_s would settle it.",
        ),
        links="Cards 0–3 are not one interconnect domain, bandwidth second-best: this holds for groups joined by "
        f"{QUAD.link_class} only.",
    )
    store_contract(tmp_path, PAIR)
    residue = (Finding(FindingKind.RESIDUE, "slow"),)
    write_record(tmp_path / PAIR.id / "smoke.json", smoke_record(PAIR.id, "rejected", findings=residue))
    assert group_state(tmp_path, QUAD).damage == f"cards 0,1 are in the residue state (smoke of {PAIR.id})"
    write_record(tmp_path / QUAD.id / "smoke.json", smoke_record(QUAD.id))
    assert group_state(tmp_path, QUAD) == GroupState(links=group_state(tmp_path, QUAD).links)


def test_the_overall_answer_repeats_the_largest_decided_size_and_never_ranks_sizes():
    two_cards = verdict_record(winner="tp1-usp2", selection=selection_record({"tp1-usp2": 0.5, "tp2-usp1": 0.6}))
    two = decide(DecisionInputs(2, "c2-x", two_cards, [form("tp1-usp2", 0.5), form("tp2-usp1", 0.6)]))
    four = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW]))
    eight = decide(DecisionInputs(8, "c8-x", OPEN, []))
    quiet = Trigger(size=4, trigger="order flip", fired=False, text="both tiers rank the forms alike")
    found = overall([eight, two, four], reverify=[quiet])
    assert (found.size, found.winner, list(found.sizes)) == (4, "tp1-usp4", ["2", "4", "8"])
    assert (found.sentence, found.margin_pct, found.basis) == (four.sentence, four.margin_pct, four.basis)
    assert found.reverify_triggers == (quiet,)
    assert overall([]).winner is None
