"""The conclusion's sentence: a winner with its conditions, no difference, or not decidable because of something."""

from __future__ import annotations

from anchormatrix.forms import parse_form
from anchormatrix.selection.conclusion import DecisionInputs, decide, overall
from anchormatrix.selection.evidence import FormEvidence, StepParts
from anchormatrix.selection.figures import ModelFigures
from anchormatrix.selection.gates import GateResult, Unexplained
from anchormatrix.selection.projection import all_projections


def form(name, step_s, parts=None, windows=("1", "2"), dispersion=0.5):
    return FormEvidence(
        parse_form(name),
        "measured",
        step_few_s=step_s,
        step_anchor_s=step_s,
        dispersion_pct=dispersion,
        usable=True,
        windows=dict.fromkeys(windows, step_s),
        parts=parts,
    )


FAST = form("tp1-usp4", 1.0, StepParts(900, 80, 0, 20))
SLOW = form("tp2-usp2", 1.1, StepParts(920, 160, 0, 20))
WON = {
    "status": "extrapolates",
    "winner": "tp1-usp4",
    "reason": "both tiers agree",
    "tied_with": [],
    "window_drift": [],
}


def test_the_template_is_filled_from_measurements():
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], projections=all_projections(SLOW, FAST)))
    assert found.sentence == (
        "On 4 cards tp1-usp4 wins by 10.0 % over tp2-usp2 at the anchor tier; when exposed communication per step of "
        "tp2-usp2 is above 60 ms, tp1-usp4 wins, else tp2-usp2; measured 160 ms, so tp1-usp4 by 10.0 % (projection). "
        "Reverses when exposed communication per step of tp2-usp2 falls to 60 ms; communication payload halved gives "
        "80 ms (projection)."
    )
    assert (found.outcome, found.runner_up, found.confidence) == ("winner", "tp2-usp2", "high")
    assert round(found.margin_pct, 6) == 10
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
    model = ModelFigures(10, 8, 8, 64, 1024)
    found = decide(DecisionInputs(4, "c4-x", WON, [form("tp1-usp4", 1.0), gather], model=model))
    assert found.conditions == (
        "When grouped-query attention shrinks K and V, tp1-usp2-ag2 sends less than tp1-usp4, else it does not; "
        "all 8 heads have their own K and V here; measured, tp1-usp4 is faster.",
    )


def test_no_difference_is_a_full_answer():
    verdict = {"status": "extrapolates", "winner": None, "tied_with": ["tp1-usp4", "tp2-usp2"], "reason": "tie"}
    found = decide(DecisionInputs(4, "c4-x", verdict, [FAST, form("tp2-usp2", 1.005)]))
    assert (found.outcome, found.winner, found.tied_with) == ("no_difference", None, ("tp1-usp4", "tp2-usp2"))
    assert found.sentence.startswith("On 4 cards there is no difference between tp1-usp4 and tp2-usp2")


def test_not_decidable_says_why_and_what_to_do():
    verdict = {
        "status": "unstable",
        "winner": None,
        "reason": "tp1-usp4/few disperses by 6 %",
        "cure": "fix the noise first",
    }
    found = decide(DecisionInputs(4, "c4-x", verdict, [FAST, SLOW]))
    assert found.sentence == (
        "On 4 cards no form can be chosen, because tp1-usp4/few disperses by 6 %. What to do: fix the noise first."
    )
    assert (found.outcome, found.confidence) == ("not_decidable", "none")


def test_a_faster_form_that_left_the_matrix_is_named_first():
    left = form("tp4-usp1", 0.8)
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], left_behind=[left, form("tp1-usp2-cfg2", 1.05)]))
    said = "Not in the matrix any more, but measured faster under this contract: tp4-usp1 by 25.0 % (0.8 s per step)."
    assert found.conditions[0] == said
    assert "; not in the matrix any more, but measured faster" in found.sentence
    assert (found.winner, found.runner_up) == ("tp1-usp4", "tp2-usp2")
    tie = {"status": "extrapolates", "winner": None, "tied_with": ["tp1-usp4", "tp2-usp2"], "reason": "tie"}
    undecided = decide(DecisionInputs(4, "c4-x", tie, [FAST, form("tp2-usp2", 1.005)], left_behind=[left]))
    assert undecided.conditions == (said,)
    assert undecided.sentence.endswith(said)


def test_a_slower_form_that_left_the_matrix_is_not_spoken_of():
    found = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW], left_behind=[form("tp4-usp1", 1.2)]))
    assert found == decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW]))


def test_unknowns_are_listed_with_what_would_settle_them():
    gap = Unexplained("tp1-usp4", "alltoall", 10.0, 20.0, 1, "the rest is unexplained")
    open_gate = GateResult(
        "G3", "tp1-usp4", "unknown", None, "ms/step", "", "all_to_all was not swept over UB links; 3 MB"
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


def test_confidence_falls_with_one_window_a_drifting_window_or_a_narrow_margin():
    once = [form("tp1-usp4", 1.0, windows=("1",)), form("tp2-usp2", 1.1, windows=("1",))]
    assert decide(DecisionInputs(4, "c", WON, once)).confidence == "low"
    drifting = {**WON, "window_drift": [{"exceeds": True}]}
    assert decide(DecisionInputs(4, "c", drifting, [FAST, SLOW])).confidence == "low"
    assert decide(DecisionInputs(4, "c", WON, [FAST, form("tp2-usp2", 1.015)])).confidence == "moderate"


def test_the_overall_answer_repeats_the_largest_decided_size_and_never_ranks_sizes():
    two = decide(
        DecisionInputs(2, "c2-x", {**WON, "winner": "tp1-usp2"}, [form("tp1-usp2", 0.5), form("tp2-usp1", 0.6)])
    )
    four = decide(DecisionInputs(4, "c4-x", WON, [FAST, SLOW]))
    eight = decide(DecisionInputs(8, "c8-x", {"status": "unstable", "winner": None, "reason": "noise"}, []))
    found = overall([eight, two, four], reverify=[{"trigger": "order flip", "fired": False}])
    assert (found["size"], found["winner"], list(found["sizes"])) == (4, "tp1-usp4", ["2", "4", "8"])
    assert {
        "margin_pct",
        "basis",
        "conditions",
        "unknowns",
        "reversal",
        "reverify_triggers",
        "confidence",
    } <= found.keys()
    assert overall([])["winner"] is None
