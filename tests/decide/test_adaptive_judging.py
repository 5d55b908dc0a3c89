"""The sessions and cells that a verdict rests on under the adaptive design."""

from __future__ import annotations

from adaptive_sessions import FORMS, LIMITS, session, walk
from measured import timed_session

from anchormatrix.decide.adaptive_judging import dropped_cells, judged_cells, judged_sessions
from anchormatrix.planning.adaptive import sequence


def test_what_was_measured_of_a_form_that_left_the_race_is_an_unusable_cell_with_the_reason():
    _, seen = walk({"tp1-usp4": 1.0, "tp2-usp2": 1.1, "tp4-usp1": 1.5}, spread_pct=0.0)
    found = dropped_cells(FORMS, seen, LIMITS)
    assert [(c.form, c.tier, c.window, c.values_s, c.usable) for c in found] == [
        ("tp4-usp1", "few", "all", (1.5,), False),
        ("tp4-usp1", "anchor", "all", (1.5,), False),
    ]
    assert found[1].reason == ("cannot win: 50.0 % behind in window 1 after 1 repeat, noise here can undo 1.5 %")


def test_without_enough_clean_windows_all_are_judged_so_that_the_verdict_says_why():
    forms = FORMS[:2]
    seen = [session(form, window, 1.0, spread_pct=4) for form, window in sequence(forms, 2)]
    kept, numbers = judged_sessions(forms, seen, LIMITS)
    assert (len(kept), numbers) == (4, {1: 1, 2: 2})


def test_a_cells_dispersion_is_that_of_all_its_windows_together():
    seen = [session("tp1-usp4", 1, 1.0, repeats=2), session("tp1-usp4", 2, 1.02, repeats=2)]
    cells = {cell.window: cell for cell in judged_cells(seen, LIMITS) if cell.tier == "anchor"}
    assert [round(cells[window].dispersion_pct, 2) for window in ("1", "2", "all")] == [0.2, 0.2, 2.18]
    assert cells["all"].usable
    drifting = [seen[0], session("tp1-usp4", 2, 1.04, repeats=2)]
    (cell,) = [c for c in judged_cells(drifting, LIMITS) if (c.tier, c.window) == ("anchor", "all")]
    assert cell.reason == "dispersion 4.1 % over all windows is above 3 %"


def test_the_verdict_is_told_why_sessions_are_missing():
    seen = [session("tp1-usp4", 1, 1.0, spread_pct=6), session("tp2-usp2", 1, 1.0, status="did_not_run")]
    reasons = [timed_session(form, 2, {}, "skipped", reason="too noisy") for form in FORMS[:2]]
    kept, _ = judged_sessions(FORMS[:2], [*seen, *reasons], LIMITS)
    assert [(*timed.place, timed.session.reason) for timed in kept if timed.session.status == "skipped"] == [
        ("tp1-usp4", 2, "too noisy")
    ]


def test_a_window_that_replaced_a_noisy_one_is_judged_in_its_place():
    forms = FORMS[:2]
    seen = [session(form, window, 1.0 + 0.2 * (form == "tp2-usp2")) for form, window in sequence(forms, 3)]
    seen[3] = session("tp1-usp4", 2, 1.0, spread_pct=4)
    kept, numbers = judged_sessions(forms, seen, LIMITS)
    assert numbers == {1: 1, 2: 3}
    assert sorted(timed.place for timed in kept) == sorted(sequence(forms, 2))
