"""The opening sentences and cards follow from the numbers, and say so when nothing is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_results import settings, write_results

from anchormatrix.report.answer import SizeAnswer, size_answers
from anchormatrix.report.captions import of_ratios
from anchormatrix.report.load import load_report
from anchormatrix.report.model import Report
from anchormatrix.report.opening import opening
from anchormatrix.report.summary import cell_rows, summary


def read(root: Path, **options: Any) -> tuple[Report, tuple[SizeAnswer, ...]]:
    """Write results, read them back and answer."""
    write_results(root, **options)
    report = load_report(settings(), root, root / "matrix_report")
    return report, size_answers(report)


def test_a_quiet_host_is_answered_in_two_sentences_with_margin_tier_repeats_and_dispersion(tmp_path: Path) -> None:
    first, second = opening(*read(tmp_path))
    assert first == (
        "Use tp1-usp2 on 2 cards (10.0 % ahead of tp2-usp1, 8.5 … 11.5 %, 2 starts each), tp1-usp4 on 4 cards (10.0 % "
        "ahead of tp2-usp2, 8.5 … 11.5 %, 2 starts each) and tp2-usp4 on 8 cards (3.3 % ahead of tp1-usp8, 2.0 … "
        "4.7 %, 2 starts each), which rests on the anchor tier (10 steps), 3 repeats in each of 2 windows, dispersion "
        "at most 0.9 %."
    )
    assert second == (
        "The 4-step ranking may be trusted on 2, 4 and 8 cards; another card group, software version or workload "
        "starts a new contract and asks the question again."
    )


def test_noise_is_not_decidable_and_says_what_its_starts_leave_open_and_the_cure(tmp_path: Path) -> None:
    report, answers = read(tmp_path, noise=10, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert (four.outcome, four.trusted) == ("not decidable", False)
    assert four.detail == (
        "because tp1-usp4 leads tp2-usp2 by 10.0 % (-3.6 … 25.6 %, 2 starts each); tp2-usp2 may still be faster by "
        "more than 1 %, because starts of one form differ by 2.3 % (standard deviation, 2 degrees of freedom)"
    )
    assert "more repeats, another window or another card group" in opening(report, answers)[1]


def test_an_order_flip_keeps_the_anchors_order_and_distrusts_the_few_steps(tmp_path: Path) -> None:
    _, answers = read(tmp_path, anchor={"tp2-usp2": 0.85}, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.headline == "tp2-usp2"
    assert four.trusted is False
    assert "ranks the forms differently" in four.trust


def test_drift_keeps_the_winner_but_not_the_few_step_ranking(tmp_path: Path) -> None:
    _, answers = read(tmp_path, anchor={"tp1-usp4": 1.09, "tp2-usp2": 1.09}, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.headline == "tp1-usp4"
    assert "drifts with the step count" in four.trust


def test_a_difference_within_the_noise_floor_is_no_difference(tmp_path: Path) -> None:
    report, answers = read(tmp_path, noise=0.1, anchor={"tp2-usp2": 0.919}, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.outcome == "no difference"
    assert four.detail.startswith("tp1-usp4 and tp2-usp2 differ by less than 1 %")
    assert "On 4 cards there is no difference" in opening(report, answers)[0]


def test_a_form_that_did_not_run_leaves_its_size_incomplete(tmp_path: Path) -> None:
    _, answers = read(tmp_path, failed=("tp2-usp2",), sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.detail == (
        "because tp2-usp2 did not run through: crashed at start: out of memory; "
        "this size has no pair of forms to compare"
    )
    assert "without a number: tp2-usp2" in four.warnings


@pytest.mark.parametrize(("size", "others"), [(2, "4 and 8"), (8, "2 and 4")])
def test_a_size_without_a_legal_group_says_why(tmp_path: Path, size: int, others: str) -> None:
    first, second = opening(*read(tmp_path, no_group=size))
    assert f"{size} cards have no legal group, because card 1 says Alarm" in first
    assert f"trusted on {others} cards" in second


def test_a_group_across_domains_always_carries_its_warning(tmp_path: Path) -> None:
    _, answers = read(tmp_path, sizes=(8,))
    eight = next(answer for answer in answers if answer.size == 8)
    assert "not one interconnect domain, bandwidth second-best" in eight.warnings


def test_nothing_measured_yet_is_said_size_by_size(tmp_path: Path) -> None:
    report = load_report(settings(), tmp_path, tmp_path / "matrix_report")
    first, second = opening(report, size_answers(report))
    assert "2 cards have no legal group, because no contract was resolved" in first
    assert second == "Whether a 4-step ranking may be trusted was not measured."


def test_a_group_that_holds_cards_in_the_residue_state_decides_nothing(tmp_path: Path) -> None:
    current = write_results(tmp_path, reject_first=4)
    report = load_report(settings(), tmp_path, tmp_path / "matrix_report")
    assert size_answers(report)[2].outcome == "winner"  # its own smoke passed, so the cards are well again
    smoke = tmp_path / current[8] / "smoke.json"
    smoke.write_text(smoke.read_text(encoding="utf-8").replace('"passed"', '"unverified"'), encoding="utf-8")
    report = load_report(settings(), tmp_path, tmp_path / "matrix_report")
    answers = size_answers(report)
    eight = next(answer for answer in answers if answer.size == 8)
    assert (eight.outcome, eight.confidence, eight.trusted) == ("not decidable", "", None)
    assert eight.detail.startswith("because cards 0–3 of its group are in the residue state")
    assert "use tp2-usp4" not in opening(report, answers)[0]
    verdict = next(one for one in summary(report, answers)["verdicts"] if one["contract"] == current[8])
    assert (verdict["status"], verdict["winner"], verdict["margin_pct"]) == ("incomplete", None, None)
    assert report.decision.value is not None
    assert current[8] not in {one.contract for one in report.decision.value.sizes.values()}
    assert report.decision.value.scaling == ()
    note = "not one interconnect domain, bandwidth second-best; holds cards 0–3, which are in the residue state"
    assert {row["note"] for row in cell_rows(report) if row["contract"] == current[8]} == {note}


def test_ratios_of_cells_too_noisy_to_use_are_not_read(tmp_path: Path) -> None:
    report, _ = read(tmp_path, noise=10, sizes=(4,))
    assert of_ratios(report) == "Every ratio rests on a cell too noisy to use, so none is read."


def test_a_contract_is_shown_with_the_version_it_was_entered_under(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(4,))
    path = tmp_path / "contracts.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"version": 1', '"version": 3'), encoding="utf-8")
    report = load_report(settings(), tmp_path, tmp_path / "matrix_report")
    assert [(one.contract.id, one.contract.version) for one in report.measured] == [(current[4], 1)]
