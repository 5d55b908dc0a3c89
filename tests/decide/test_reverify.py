"""When a stored decision must be verified again, and how it is remembered."""

from __future__ import annotations

import pytest

from anchormatrix.decide.reverify import append_bases, read_bases, reverify
from anchormatrix.records.conclusions.decision import Basis, BasisForm
from anchormatrix.records.conclusions.verdict import VerdictStatus
from anchormatrix.store.codec import line_text


def form(name="tp1-usp4", few=1.0, anchor=1.0, exposed_ms=100.0, **doubts):
    return BasisForm(
        form=name, few_s=few, anchor_s=anchor, exposed_ms=exposed_ms, exposed_share=exposed_ms / 1000, **doubts
    )


def stored(**changes):
    facts = {"model.bytes_per_value": 2, "engine.extra_args": "", "workload.seed": 42}
    base = {
        "size": 4,
        "contract": "c4-x",
        "winner": "tp1-usp4",
        "status": VerdictStatus.EXTRAPOLATES,
        "forms": (form(),),
        "facts": {**facts, **changes.pop("facts", {})},
        "fixed_s": {"encode": 0.4, "decode": 3.0},
        "possible": ("tp1-usp4",),
    }
    return Basis(**{**base, **changes})


def fired(now, before=None):
    return {trigger.trigger: trigger.text for trigger in reverify(before or stored(), now) if trigger.fired}


def test_nothing_fires_while_nothing_changes():
    assert fired(stored()) == {}
    assert len(reverify(stored(), stored())) == 8


@pytest.mark.parametrize(("late", "fires"), [(0.13, False), (0.14, True)])
def test_a_share_that_differs_late_in_an_anchor_request_fires_beyond_three_points(late, fires):
    now = stored(forms=(form(exposed_share_anchor=late), form("tp2-usp2")))
    found = reverify(None, now)[-1]
    assert (found.trigger, found.fired) == ("exposed share drifts between the tiers", fires)
    assert f"tp1-usp4 10.0 % → {100 * late:.1f} %; 3 points are allowed" in found.text


@pytest.mark.parametrize(
    ("now", "trigger", "text"),
    [
        ({"status": VerdictStatus.ORDER_FLIP}, "order flip", "the tiers rank the forms differently"),
        (
            {"status": VerdictStatus.DRIFT, "forms": (form(anchor=1.09),)},
            "step time drift",
            "tp1-usp4 +9.0 % between the tiers",
        ),
        (
            {"forms": (form(exposed_ms=160.0),)},
            "exposed-communication share drift",
            "tp1-usp4 10.0 % → 16.0 %",
        ),
        (
            {"facts": {"engine.extra_args": "--quantization fp8"}},
            "step structure changed",
            "engine.extra_args  → --quantization fp8: quantization shortens compute, so communication's share rises",
        ),
        (
            {"facts": {"model.sparse_block": 128}},
            "step structure changed",
            "model.sparse_block None → 128: sparse attention swaps operators",
        ),
        (
            {"facts": {"engine.env.CACHE_DIT": "1"}},
            "step structure changed",
            "engine.env.CACHE_DIT None → 1: caching skips forwards",
        ),
        (
            {"possible": ("tp1-usp4", "tp2-usp2")},
            "memory unlocks forms",
            "newly possible: tp2-usp2",
        ),
        ({"fixed_s": {"encode": 0.9, "decode": 3.1}}, "new fixed cost", "encode 0.40 s → 0.90 s"),
        ({"fixed_s": {"upscale": 2.0}}, "new fixed cost", "upscale 0.00 s → 2.00 s"),
        ({"facts": {"workload.seed": 7}}, "configuration changed", "workload.seed 42 → 7"),
    ],
)
def test_each_trigger_fires_with_its_numbers(now, trigger, text):
    assert fired(stored(**now)) == {trigger: text}


def trigger(name, now, **more):
    return next(item for item in reverify(stored(), now, **more) if item.trigger == name)


SHORT = "short-task communication pathology"
NOISY = "may not be ranked: dispersion 33.0 % is above 3 %"


def test_few_steps_on_many_ranks_that_are_slower_than_the_anchors_are_a_pathology():
    found = trigger(SHORT, stored(forms=(form(few=1.2),)))
    assert (found.fired, found.text) == (True, "few-step steps are slower than the anchor's: tp1-usp4 +20.0 %")


def test_more_cards_that_are_slower_at_few_steps_only_are_a_pathology():
    """At few steps eight cards take 1.0 s where four take 0.9 s, at the anchor 0.98 s where those take 1.0 s."""
    four = stored(forms=(form("tp1-usp4", few=0.9, anchor=1.0), form("tp2-usp2", few=0.5, anchor=0.5)))
    eight = stored(size=8, forms=(form("tp1-usp8", few=1.0, anchor=0.98),))
    found = trigger(SHORT, eight, smaller=[four])
    assert (found.fired, found.text) == (
        True,
        "tp1-usp8 is slower than tp1-usp4 on fewer cards at few steps (+11.1 %) and not at the anchor (-2.0 %)",
    )
    slower_anyway = stored(size=8, forms=(form("tp1-usp8", few=1.0, anchor=1.02),))
    found = trigger(SHORT, slower_anyway, smaller=[four])
    assert (found.fired, found.text) == (
        False,
        "no few-step step is slower than its anchor's by more than 5 %, none slower than on fewer cards and faster at "
        "the anchor",
    )
    unread = stored(forms=(form("tp1-usp4", few=0.9, anchor=1.0, doubt=NOISY),))
    assert not trigger(SHORT, eight, smaller=[unread]).fired


def test_evidence_that_may_not_be_read_fires_nothing_and_is_told_with_the_reason():
    noisy = form(few=1.5, anchor=1.0, doubt=NOISY)
    for name in ("step time drift", SHORT):
        found = trigger(name, stored(forms=(noisy,)))
        assert (found.evaluated, found.fired) == (False, False)
        assert found.text.endswith(f"may be read at both tiers: tp1-usp4: {NOISY}")
        beside = trigger(name, stored(forms=(noisy, form("tp2-usp2"))))
        assert (beside.evaluated, beside.fired) == (True, False)
        assert beside.text.endswith(f"; not read: tp1-usp4: {NOISY}")
    ramp = BasisForm("tp1-usp4", 1.0, 1.0, 160.0, None, capture_doubt="the capture fell on the ramp")
    found = trigger("exposed-communication share drift", stored(forms=(ramp,)))
    assert (found.evaluated, found.text) == (
        False,
        "no form has an exposed share from then and from now: tp1-usp4: the capture fell on the ramp",
    )


def test_a_first_decision_has_nothing_to_compare_with_and_says_so():
    found = {item.trigger: item for item in reverify(None, stored())}
    untested = {name: item.text for name, item in found.items() if not item.evaluated}
    assert untested == dict.fromkeys(
        (
            "exposed-communication share drift",
            "step structure changed",
            "memory unlocks forms",
            "new fixed cost",
            "configuration changed",
        ),
        "nothing to compare with yet: no earlier decision of this size",
    )
    assert not any(item.fired for item in found.values())
    assert found["order flip"].text == "both tiers rank the forms alike"


def test_what_was_not_measured_is_not_called_quiet():
    bare = stored(status=VerdictStatus.INCOMPLETE, forms=(form("tp1-usp2", few=None),), fixed_s={})
    found = {item.trigger: item.text for item in reverify(stored(), bare) if not item.evaluated}
    assert found == {
        "order flip": "the tiers cannot be compared: the verdict is incomplete",
        "step time drift": "no form may be read at both tiers",
        "exposed-communication share drift": "no form has an exposed share from then and from now",
        "short-task communication pathology": "no form on 4 or more ranks may be read at both tiers",
        "new fixed cost": "no stage outside the DiT was timed",
    }


def test_a_few_step_step_that_is_a_little_slower_is_told_with_the_limit():
    (found,) = (item for item in reverify(None, stored(forms=(form(few=1.02),))) if "short-task" in item.trigger)
    assert (found.fired, found.text) == (False, "no few-step step is slower than its anchor's by more than 5 %")


def test_few_ranks_do_not_make_a_short_task_pathology():
    assert not trigger(SHORT, stored(forms=(form("tp1-usp2", few=1.2),))).fired


def test_a_remembered_decision_comes_back_as_it_was(tmp_path):
    ledger = tmp_path / "decisions.jsonl"
    line = stored()
    append_bases(ledger, [line], read_bases(ledger))
    append_bases(ledger, [line], read_bases(ledger))  # nothing new: nothing appended
    assert ledger.read_text().count("\n") == 1
    back = read_bases(ledger)[4][-1]
    assert fired(stored(), back) == {}
    assert fired(stored(facts={"workload.seed": 7}), back) == {"configuration changed": "workload.seed 42 → 7"}


def test_a_torn_line_is_left_behind_and_not_glued_to_the_next(tmp_path):
    ledger = tmp_path / "decisions.jsonl"
    ledger.write_text(line_text(stored()) + '{"size": 4, "contr')
    append_bases(ledger, [stored(size=8)], read_bases(ledger))
    assert {size: len(lines) for size, lines in read_bases(ledger).items()} == {4: 1, 8: 1}
