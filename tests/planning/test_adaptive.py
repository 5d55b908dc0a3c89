"""The design of a matrix: what is measured next, what is left out, and why."""

from __future__ import annotations

from adaptive_sessions import DESIGN, FORMS, session, walk

from anchormatrix.planning.adaptive import MatrixDesign, due, next_order, order_for, sequence, starts_of
from anchormatrix.planning.ranking import Rule
from anchormatrix.records.conclusions.selection import StartNoise


def test_windows_are_adjacent_and_every_second_one_is_reversed():
    assert sequence(("a", "b"), 3) == (("a", 1), ("b", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3))


def test_the_full_design_measures_every_form_in_every_window():
    full = MatrixDesign(repeats=3, windows=2)
    places, seen = walk({"tp1-usp4": (1.0,), "tp2-usp2": (2.0,), "tp4-usp1": None}, full)
    assert places == list(sequence(FORMS, 2))
    assert due(FORMS, seen, full) == dict.fromkeys(FORMS, (1, 2))


def test_quiet_forms_far_apart_take_two_windows_and_a_hopeless_one_only_the_first():
    places, seen = walk({"tp1-usp4": (1.0, 1.001), "tp2-usp2": (1.1, 1.101), "tp4-usp1": (1.5,)})
    assert places == [*sequence(FORMS, 1), ("tp2-usp2", 2), ("tp1-usp4", 2)]
    assert order_for("tp4-usp1", 2, FORMS, seen, DESIGN).skip == "it cannot win any more: 50.0 % behind tp1-usp4"
    assert order_for("tp1-usp4", 3, FORMS, seen, DESIGN).skip == (
        "the choice is made: tp1-usp4 is faster than every other form"
    )
    assert due(FORMS, seen, DESIGN) == {"tp1-usp4": (1, 2), "tp2-usp2": (1, 2), "tp4-usp1": (1,)}


def test_more_starts_go_to_the_forms_that_are_still_open():
    steps = {"tp1-usp4": (1.0, 1.02, 1.0, 1.02), "tp2-usp2": (1.03, 1.025, 1.035, 1.03), "tp4-usp1": (1.2, 1.21)}
    places, _ = walk(steps, forms=FORMS)
    assert [place for place in places if place[0] == "tp4-usp1"] == [("tp4-usp1", 1)]
    assert max(window for form, window in places if form == "tp2-usp2") > 2


def test_one_window_is_enough_when_history_knows_the_noise():
    known = MatrixDesign(3, 8, True, Rule(known=StartNoise(sd_pct=0.3, dof=20, from_history=20)))
    places, _ = walk({"tp1-usp4": (1.0,), "tp2-usp2": (1.05,), "tp4-usp1": (1.2,)}, known)
    assert places == list(sequence(FORMS, 1))


def test_measuring_ends_when_more_starts_would_not_decide():
    _, seen = walk({"tp1-usp4": (1.0, 1.3), "tp2-usp2": (1.3, 1.0)}, forms=FORMS[:2])
    assert len(seen) == 4
    assert order_for("tp1-usp4", 3, FORMS[:2], seen, DESIGN).skip.startswith("more starts would not decide: starts of")


def test_a_form_that_failed_is_not_tried_again_and_one_form_alone_is_no_race():
    steps = {"tp1-usp4": (1.0, 1.001), "tp2-usp2": None, "tp4-usp1": None}
    places, seen = walk(steps)
    assert places == list(sequence(FORMS, 1))
    assert order_for("tp2-usp2", 2, FORMS, seen, DESIGN).skip == "it gave no numbers in an earlier window"
    assert order_for("tp1-usp4", 2, FORMS, seen, DESIGN).skip == "no other form is left to compare it with"


def test_a_start_that_did_not_settle_or_lacks_repeats_is_no_start():
    short = session("tp1-usp4", 1, 1.0, repeats=2)
    assert starts_of([short], 3) == {"tp1-usp4": {}}
    assert starts_of([session("tp1-usp4", 1, 1.0, status="did_not_run")], 3) == {}
    assert starts_of([session("tp1-usp4", 1, 1.0, status="contaminated")], 3) == {"tp1-usp4": {}}
    assert starts_of([session("tp1-usp4", 2, 1.0, spread_pct=0)], 3) == {"tp1-usp4": {2: (1.0, 1.0, 1.0)}}


def test_a_form_without_a_valid_start_is_started_again_before_anything_is_decided():
    _, seen = walk({"tp1-usp4": (1.0, 1.001), "tp2-usp2": (1.1, 1.101), "tp4-usp1": (1.5,)}, forms=FORMS[:2])
    seen = [*seen[:2], session("tp4-usp1", 1, 0.9, status="contaminated"), *seen[2:]]
    assert order_for("tp4-usp1", 3, FORMS, seen, DESIGN).skip == ""
    assert order_for("tp2-usp2", 3, FORMS, seen, DESIGN).skip == "it cannot win any more: 10.0 % behind tp1-usp4"


def test_what_a_window_measures_never_hangs_on_that_window_itself():
    first = [session(form, 1, step) for form, step in zip(FORMS, (1.0, 1.1, 1.5), strict=True)]
    spoiled = [*first, session("tp2-usp2", 2, 9.0)]
    assert order_for("tp1-usp4", 2, FORMS, first, DESIGN) == order_for("tp1-usp4", 2, FORMS, spoiled, DESIGN)


def test_asking_again_gives_what_was_asked_before():
    _, seen = walk({"tp1-usp4": (1.0, 1.01), "tp2-usp2": (1.02, 1.01), "tp4-usp1": (1.015, 1.03)})
    assert next_order(FORMS, seen, DESIGN) is None
    assert next_order(FORMS, seen[:-1], DESIGN).form == seen[-1].session.form
