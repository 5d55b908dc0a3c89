"""No planned form leaves the comparison silently: what its repeats say, and whether they rule it out."""

from __future__ import annotations

import pytest
from measured import session_record

from anchormatrix.decide.left_out import LeftOut, left_out
from anchormatrix.records.conclusions.cells import ALL, cell_of
from anchormatrix.records.session import Session


def held_against_ten_seconds(reason: str, *values_s: float, sessions: tuple[Session, ...] = ()) -> LeftOut:
    """A form left out beside a winner of 10 s per step, with a noise floor of 1 %."""
    cells = [cell_of("c4", "tp2-usp2", "anchor", ALL, (10.0, 10.0, 10.0), 0.0)]
    cells += [cell_of("c4", "tp4-usp1", "anchor", ALL, values_s, 5.0, reason)] if values_s else []
    cells += [cell_of("c4", "tp4-usp1", "few", ALL, (1.0,), 0.0)]
    forms = ("tp2-usp2", "tp4-usp1")
    (found,) = left_out(forms, cells, sessions, ranked=["tp2-usp2"], leader="tp2-usp2", floor_pct=1.0)
    return found


def test_a_form_that_was_faster_in_the_repeats_it_has_is_not_ruled_out() -> None:
    found = held_against_ten_seconds("2 of 3 repeats", 8.0, 8.0)
    assert not found.ruled_out
    assert found.least_s == 8.0
    assert found.text == (
        "tp4-usp1 is not ranked (2 of 3 repeats); "
        "it was 25.0 % faster than tp2-usp2 in 2 of 2 repeats and cannot be ruled out"
    )


def test_one_outlier_does_not_hide_that_the_others_were_faster() -> None:
    found = held_against_ten_seconds("dispersion 40.0 % is above 3 %", 8.0, 12.0, 8.0)
    assert found.faster_s == (8.0, 8.0)
    assert "25.0 % faster than tp2-usp2 in 2 of 3 repeats and cannot be ruled out" in found.text


def test_even_the_fastest_repeat_slower_beyond_the_floor_rules_a_form_out() -> None:
    found = held_against_ten_seconds("stopped early", 11.0, 13.0)
    assert found.ruled_out
    assert found.text.endswith("even its fastest repeat was 10.0 % slower than tp2-usp2, which rules it out")


@pytest.mark.parametrize("least_s", [9.95, 10.05])
def test_a_fastest_repeat_within_the_noise_floor_rules_nothing_out(least_s: float) -> None:
    found = held_against_ten_seconds("2 of 3 repeats", least_s, 12.0)
    assert not found.ruled_out
    assert "within the noise floor of 1.0 % of tp2-usp2, so it cannot be ruled out" in found.text


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("did_not_run", "it did not run through: so"), ("void", "it ran without taking effect: so"),
        ("contaminated", "it was disturbed by other processes: so"), ("skipped", "it was not measured further: so"),
    ],
)  # fmt: skip
def test_a_form_without_an_anchor_step_says_what_became_of_it(status: str, words: str) -> None:
    found = held_against_ten_seconds("", sessions=(session_record("tp4-usp1", 1, status, reason="so"),))
    assert not found.ruled_out
    assert found.text == f"tp4-usp1 is not ranked ({words}); without an anchor step it cannot be ruled out"


def test_a_form_nobody_started_is_named_too() -> None:
    assert "it was never started" in held_against_ten_seconds("").text


def test_without_a_leader_the_bound_stands_alone() -> None:
    cells = [cell_of("c4", "tp4-usp1", "anchor", ALL, (9.0, 9.5), 5.4, "noisy")]
    (found,) = left_out(["tp4-usp1"], cells, (), ranked=(), leader=None, floor_pct=1.0)
    assert not found.ruled_out
    assert found.text == "tp4-usp1 is not ranked (noisy); its fastest repeat took 9 s per step"


def test_forms_that_are_ranked_are_not_left_out() -> None:
    assert left_out(["tp2-usp2"], (), (), ranked=["tp2-usp2"], leader="tp2-usp2", floor_pct=1.0) == ()
