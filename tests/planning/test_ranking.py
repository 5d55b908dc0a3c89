"""The fastest form among server starts: eliminated, settled within the zone, or open, with intervals."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp

import pytest
from msgspec.structs import replace as replace_record

from anchormatrix.planning.ranking import Rule, half_width_pct, select
from anchormatrix.records.conclusions.selection import Rival, Standing, StartNoise

RULE = Rule()
KNOWN = replace(RULE, known=StartNoise(sd_pct=0.5, dof=20, from_history=20))


def starts(**steps):
    """Forms with one step a start; three repeats of each that do not differ."""
    return {form: {w: (step,) * 3 for w, step in enumerate(found, 1)} for form, found in steps.items()}


def standings(found):
    return {rival.form: rival.standing.value for rival in found.rivals}


def test_two_starts_of_each_give_two_degrees_of_freedom_and_a_wide_interval():
    # log differences 0.0995, 0.1015 → mean 0.1005; within form ±0.5 %: variance 5e-5 · 2 over 2 degrees of freedom
    found = select(starts(a=(1.0, 1.01), b=(1.11, 1.121)), RULE)
    assert (found.leader, found.decided, found.noise.dof) == ("a", True, 2)
    assert found.noise.sd_pct == pytest.approx(0.70, abs=0.01)
    (rival,) = found.rivals
    assert (rival.standing, rival.starts) == (Standing.BEHIND, 2)
    assert rival.behind_pct == pytest.approx(11.0, abs=0.05)
    # t(0.985, 2) = 5.64; error = 5.64 · 0.00700 · √(2 ÷ 2) = 0.0396
    assert rival.low_pct == pytest.approx(6.6, abs=0.15)
    assert rival.high_pct == pytest.approx(15.5, abs=0.15)


def test_a_difference_that_the_starts_could_have_made_is_open():
    found = select(starts(a=(1.0, 1.02), b=(1.03, 1.01)), RULE)
    assert (found.leader, found.decided, standings(found)) == ("a", False, {"b": "open"})
    assert found.rivals[0].low_pct < -1


def test_forms_within_the_zone_are_settled_and_none_of_them_is_a_loss():
    found = select(starts(a=(1.0, 1.0005), b=(1.002, 1.0025)), RULE)
    assert (found.decided, standings(found), found.tied) == (True, {"b": "behind"}, ("b",))
    close = select(starts(a=(1.0, 1.001), b=(1.0005, 1.0006)), RULE)
    assert (close.decided, standings(close), close.tied) == (True, {"b": "settled"}, ("b",))


def test_a_form_that_may_be_slower_by_more_than_the_zone_is_no_tie():
    found = select(starts(a=(1.0, 1.003), b=(1.007, 1.009)), RULE)
    assert (found.decided, standings(found), found.tied) == (True, {"b": "settled"}, ())
    assert (found.rivals[0].behind_pct, found.rivals[0].high_pct) == (
        pytest.approx(0.65, abs=0.01),
        pytest.approx(1.7, abs=0.1),
    )


def test_one_window_decides_nothing_unless_history_tells_the_noise():
    one = starts(a=(1.0,), b=(1.05,), c=(1.2,))
    assert (select(one, RULE).decided, select(one, RULE).noise) == (False, None)
    found = select(one, KNOWN)
    assert (found.decided, standings(found)) == (True, {"b": "behind", "c": "behind"})
    assert found.noise.from_history == 20


def test_before_the_noise_is_known_only_forms_far_behind_are_left_out_and_two_stay():
    found = select(starts(a=(1.0,), b=(1.05,), c=(1.2,)), RULE)
    assert standings(found) == {"b": "open", "c": "behind"}
    assert standings(select(starts(a=(1.0,), b=(1.5,), c=(1.6,)), RULE)) == {"b": "open", "c": "behind"}


def test_a_window_that_was_slow_for_all_moves_no_difference():
    found = select(starts(a=(1.0, 1.1), b=(1.2, 1.32)), RULE)
    assert found.rivals[0].behind_pct == pytest.approx(20.0)


def test_forms_are_compared_over_the_windows_that_both_have():
    found = select({"a": {1: (1.0,) * 3, 2: (1.1,) * 3}, "b": {2: (1.21,) * 3}}, KNOWN)
    assert found.rivals[0].behind_pct == pytest.approx(10.0)
    assert found.rivals[0].starts == 1


def test_the_spread_of_repeats_bounds_the_noise_from_below():
    # by chance the medians of two starts are equal; repeats that differ by 10 % say that the next need not be
    wild = {"a": {1: (0.95, 1.0, 1.05), 2: (0.95, 1.0, 1.05)}, "b": {1: (0.98, 1.03, 1.08), 2: (0.98, 1.03, 1.08)}}
    found = select(wild, RULE)
    assert found.noise.sd_pct == pytest.approx(3.3, abs=0.1)
    assert not found.decided


def test_a_race_that_all_its_starts_would_hardly_decide_is_hopeless_and_says_why():
    found = select(starts(a=(1.0, 1.3), b=(1.3, 1.0)), RULE)
    assert found.hopeless.startswith("starts of one form differ by")
    assert not select(starts(a=(1.0, 1.002), b=(1.004, 1.001)), RULE).hopeless


def test_an_eliminated_form_stays_out():
    steps = starts(a=(1.0, 1.001, 1.0, 1.0), b=(1.02, 1.021, 1.0, 1.0), c=(1.003, 1.0, 1.001, 1.0))
    assert standings(select(steps, RULE))["b"] == "behind"


def test_how_far_apart_two_forms_must_be_shrinks_with_their_starts():
    two, four = starts(a=(1.0, 1.01), b=(1.0, 1.01)), starts(a=(1.0, 1.01) * 2, b=(1.0, 1.01) * 2)
    assert half_width_pct(two, "a", "b", RULE) == pytest.approx(4.05, abs=0.05)
    assert half_width_pct(four, "a", "b", RULE) == pytest.approx(1.14, abs=0.05)
    assert half_width_pct(two, "a", "c", RULE) is None
    assert half_width_pct(starts(a=(1.0,), b=(1.1,)), "a", "b", RULE) is None


def test_nothing_is_decided_while_a_form_that_ran_has_no_start():
    found = select({**starts(a=(1.0, 1.001), b=(1.1, 1.101)), "c": {}}, RULE)
    assert (found.leader, found.decided, found.unheard, standings(found)) == ("a", False, ("c",), {"b": "behind"})


def test_a_form_that_is_out_is_held_against_the_form_that_leads_now():
    # b leads at first, and c is out against it; then a turns out to be the fastest, 10 % ahead of c
    steps = starts(a=(1.02, 0.90, 0.90, 0.90), b=(1.0, 1.0, 1.0, 1.0), c=(1.12,))
    found = select(steps, replace(RULE, far_pct=10.6))
    (out,) = [rival for rival in found.rivals if rival.form == "c"]
    assert (found.leader, out.standing, out.starts) == ("a", Standing.BEHIND, 1)
    assert out.behind_pct == pytest.approx(9.8, abs=0.05)  # 1.12 ÷ 1.02 in the window that both were measured in
    assert out.low_pct is not None


def test_ties_are_those_whose_interval_lies_within_the_zone_wherever_they_stand_among_the_rivals():
    near = Rival(form="b", standing=Standing.SETTLED, behind_pct=0.3, low_pct=-0.6, high_pct=1.2, starts=1)
    tied = Rival(form="c", standing=Standing.SETTLED, behind_pct=0.5, low_pct=0.1, high_pct=0.9, starts=4)
    found = replace_record(select(starts(a=(1.0, 1.0), b=(1.0, 1.0)), RULE), rivals=(near, tied))
    assert (found.tied, found.ties) == (("c",), (tied,))


def test_fewer_than_two_forms_are_no_choice():
    assert not select({}, RULE).decided
    assert select(starts(a=(1.0, 1.0)), RULE).decided is False


@pytest.mark.parametrize(("margin", "deviation"), [(0.011, 0.01), (0.02, 0.02), (0.05, 0.01)])
def test_the_wrong_form_is_hardly_ever_chosen(margin, deviation):
    """Just outside the zone is where a procedure errs most."""
    rng = random.Random(5)
    wrong = 0
    for _ in range(150):
        found = {"a": {}, "b": {}}
        for window in range(1, 9):
            for form, slower in (("a", 0.0), ("b", margin)):
                found[form][window] = (exp(slower + rng.gauss(0, deviation)),) * 3
            result = select(found, RULE)
            if result.decided:
                wrong += result.leader == "b"
                break
            if result.hopeless:
                break
    assert wrong <= 8
