"""The adaptive design: what is measured next, what is left out, and why."""

from __future__ import annotations

from adaptive_sessions import FORMS, LIMITS, session, walk
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.planning.adaptive import Order, contenders, next_order, order_for, sequence, skipped
from anchormatrix.planning.adaptive_state import AdaptiveLimits


def test_windows_are_adjacent_and_every_second_one_is_reversed():
    assert sequence(("a", "b"), 3) == (("a", 1), ("b", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3))


def test_a_hopeless_form_is_stopped_after_its_first_anchor_and_left_out_of_the_second_window():
    steps = {"tp1-usp4": 1.0, "tp2-usp2": 1.1, "tp4-usp1": 1.5}
    orders, seen = walk(steps, spread_pct=0.0)
    assert [(o.form, o.window) for o in orders] == [
        ("tp1-usp4", 1),
        ("tp2-usp2", 1),
        ("tp4-usp1", 1),
        ("tp2-usp2", 2),
        ("tp1-usp4", 2),
    ]
    assert len(seen[2].values_s["anchor"]) == 1
    left_out = {(o.form, o.window): o.skip for o in skipped(FORMS, seen, LIMITS)}
    assert left_out == {
        ("tp4-usp1", 2): "it cannot win any more: 50.0 % behind in window 1 after 1 repeat, noise here can undo 1.5 %"
    }
    assert contenders(FORMS, seen, LIMITS) == ("tp1-usp4", "tp2-usp2")


def test_the_pair_is_always_measured_in_two_windows_however_far_apart():
    orders, seen = walk({"tp1-usp4": 1.0, "tp2-usp2": 2.0}, forms=FORMS[:2])
    assert [(o.form, o.window) for o in orders] == list(sequence(FORMS[:2], 2))
    assert all(len(s.values_s["anchor"]) >= 2 for s in seen)


def test_the_reach_grows_with_the_noise_up_to_what_the_rules_let_pass():
    quiet = order_for("tp4-usp1", 1, FORMS, [session("tp1-usp4", 1, 1.0), session("tp2-usp2", 1, 1.1)], LIMITS)
    noisy = [session("tp1-usp4", 1, 1.0, spread_pct=2.0), session("tp2-usp2", 1, 1.1, spread_pct=2.0)]
    assert round(quiet.stop_above_s, 4) == 1.015
    assert round(order_for("tp4-usp1", 1, FORMS, noisy, LIMITS).stop_above_s, 4) == 1.06


def test_stopping_needs_two_whole_rivals_of_different_splits():
    one = [session("tp1-usp4", 1, 1.0)]
    assert order_for("tp2-usp2", 1, FORMS, one, LIMITS).stop_above_s is None
    same = [*one, session("tp1-usp4+mask5", 1, 1.0)]
    assert order_for("tp2-usp2", 1, ("tp1-usp4", "tp1-usp4+mask5", "tp2-usp2"), same, LIMITS).stop_above_s is None


def test_repeats_are_added_only_where_the_margin_lies_close_to_the_noise_floor():
    far = [session("tp1-usp4", 1, 1.0), session("tp2-usp2", 1, 1.2)]
    close = [session("tp1-usp4", 1, 1.0), session("tp2-usp2", 1, 1.011)]
    assert order_for("tp2-usp2", 2, FORMS[:2], far, LIMITS).repeats == 2
    assert order_for("tp2-usp2", 2, FORMS[:2], close, LIMITS).repeats == 3


def test_noise_far_above_the_limit_ends_the_measuring():
    seen = [session("tp1-usp4", 1, 1.0, spread_pct=6)]
    assert next_order(FORMS, seen, LIMITS) is None
    reasons = {order.skip for order in skipped(FORMS, seen, LIMITS)}
    assert reasons == {
        "tp1-usp4/few disperses by 6.0 % in window 1: far above the limit of 3 %, "
        "nothing may be ranked until the noise is fixed"
    }


def test_cells_that_disperse_too_much_on_average_end_the_measuring_too():
    seen = [session("tp1-usp4", 1, 1.0, spread_pct=2.6), session("tp2-usp2", 1, 1.1, spread_pct=2.6)]
    assert next_order(FORMS, seen, LIMITS) is None
    assert order_for("tp4-usp1", 1, FORMS, seen, LIMITS).skip.startswith("cells disperse by 2.6 % on average")


def test_a_noisy_window_is_left_at_once():
    limits = AdaptiveLimits(give_up_mean_pct=9)
    seen = [session("tp1-usp4", 1, 1.0, spread_pct=3.5)]
    assert order_for("tp2-usp2", 1, FORMS, seen, limits).skip == (
        "tp1-usp4/few disperses by 3.5 % in window 1: this window does not count any more"
    )
    assert next_order(FORMS, seen, limits) == Order("tp4-usp1", 2, 2)
    seen.append(session("tp4-usp1", 2, 1.0, spread_pct=3.5))
    assert next_order(FORMS, seen, limits) is None
    assert order_for("tp1-usp4", 3, FORMS, seen, limits).skip == "too few windows are left to replace the noisy ones"


def test_a_noisy_window_is_replaced_by_an_extra_one():
    forms = FORMS[:2]
    seen = [session(form, window, 1.0 + 0.2 * (form == "tp2-usp2")) for form, window in sequence(forms, 2)]
    assert next_order(forms, seen, LIMITS) is None
    seen[3] = session("tp1-usp4", 2, 1.0, spread_pct=4)
    assert next_order(forms, seen, LIMITS) == Order("tp1-usp4", 3, 2)
    more = [*seen, session("tp1-usp4", 3, 1.0), session("tp2-usp2", 3, 1.2)]
    assert next_order(forms, more, LIMITS) is None


def test_a_form_that_did_not_run_is_not_tried_again_but_stays_in_the_verdict():
    seen = [session("tp1-usp4", 1, 1.0), session("tp2-usp2", 1, 1.0, status="did_not_run"), session("tp4-usp1", 1, 1.1)]
    assert order_for("tp2-usp2", 2, FORMS, seen, LIMITS).skip == "it did not run through in an earlier window"
    assert contenders(FORMS, seen, LIMITS) == FORMS


def test_a_stop_is_told_with_its_numbers():
    order = Order("tp4-usp1", 1, 3, stop_above_s=1.06)
    assert order.stop([]) == order.stop([1.05]) == ""
    assert order.stop([1.2]) == "cannot win any more: 1.2 s per step after 1 repeat, noise reaches 1.06 s"


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), st.floats(0, 8))
def test_the_policy_always_ends_and_never_loses_the_best_form(steps, spread):
    by_form = dict(zip(FORMS, steps, strict=True))
    orders, seen = walk(by_form, spread_pct=spread)
    assert len(orders) <= len(FORMS) * LIMITS.all_windows
    best = min(by_form, key=lambda form: by_form[form])
    if spread <= 2:
        assert best in contenders(FORMS, seen, LIMITS)
        assert {order.window for order in orders if order.form == best} >= {1, 2}
    done = {(order.form, order.window) for order in orders}
    left_out = {(order.form, order.window) for order in skipped(FORMS, seen, LIMITS)}
    assert done.isdisjoint(left_out)
    assert set(sequence(FORMS, 2)) <= done | left_out
