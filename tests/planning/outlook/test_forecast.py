"""What a person is told before measuring: what the starts can tell, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from night_results import contract, place
from run_plans import contract_plan

from anchormatrix.history.progress import Durations
from anchormatrix.planning.adaptive import MatrixDesign
from anchormatrix.planning.outlook.forecast import forecast, forecast_lines
from anchormatrix.planning.ranking import Rule, resolution_pct
from anchormatrix.records.conclusions.selection import StartNoise

PAIR = contract_plan(contract(), ("tp1-usp2", "tp2-usp1"))
KNOWN = Rule(known=StartNoise(sd_pct=0.5, dof=20, from_history=20))
NEVER = Durations({})
TWO_MINUTES = Durations({place(): 100.0, place("tp2-usp1"): 140.0})


@pytest.mark.parametrize(
    ("forms", "starts", "told_pct"),
    [
        (2, 2, 5.8),  # 2 degrees of freedom: t of 1.5 % is 5.64
        (2, 8, 1.2),  # 14: t is 2.41, and the mean of eight starts deviates half as far as that of two
        (4, 2, 4.7),  # 4, and three comparisons share 1.5 %: t of 0.5 % is 4.60
    ],
)
def test_the_margin_that_starts_tell_where_they_differ_by_one_percent(forms, starts, told_pct):
    assert resolution_pct(1.0, Rule(), forms=forms, starts=starts) == pytest.approx(told_pct, abs=0.05)


def test_the_full_design_on_a_new_host():
    assert forecast(PAIR, MatrixDesign(), NEVER).words == (
        "4 server starts. How far starts differ here is unknown: if by 1 %, 2 of each form tell margins above 5.8 %"
    )


def test_the_adaptive_design_where_the_noise_and_the_sessions_are_known():
    found = forecast(PAIR, MatrixDesign(windows=8, adaptive=True, rule=KNOWN), TWO_MINUTES)
    assert found.words == (
        "2 to 16 server starts, about 0:04 h to 0:32 h (0.13 to 1.1 card-hours). Starts differ by 0.5 %"
        " here: 8 of each form tell margins above 1.0 %"
    )


def test_without_known_noise_two_forms_are_started_again_before_anything_is_decided():
    three = contract_plan(contract(), ("a", "b", "c"))
    assert forecast(three, MatrixDesign(windows=8, adaptive=True), NEVER).least == 5
    assert forecast(three, MatrixDesign(windows=8, adaptive=True, rule=KNOWN), NEVER).least == 3


def test_one_start_of_each_decides_only_where_the_noise_is_known():
    assert forecast(PAIR, MatrixDesign(windows=1), NEVER).words.endswith(" One start of each form decides nothing")
    assert forecast(PAIR, MatrixDesign(windows=1, rule=KNOWN), NEVER).tells_pct == pytest.approx(1.7, abs=0.05)


def test_a_single_form_is_compared_with_nothing():
    assert forecast(contract_plan(contract(), ("tp1-usp2",)), MatrixDesign(), NEVER) is None


def test_sizes_of_which_the_same_is_said_share_a_line():
    two = forecast(PAIR, MatrixDesign(), NEVER)
    four, eight = replace(two, size=4), replace(two, size=8, most=6, least=6)
    first, second = forecast_lines([two, four, eight])
    assert first.startswith("2, 4 cards: 4 server starts. ")
    assert second.startswith("8 cards: 6 server starts. ")
