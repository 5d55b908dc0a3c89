"""The opening sentences and cards follow from the numbers, and say so when nothing is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_results import settings, write_results

from anchormatrix.report.answer import SizeAnswer, opening, size_answers
from anchormatrix.report.load import load_report
from anchormatrix.report.model import Report


def read(root: Path, **options: Any) -> tuple[Report, tuple[SizeAnswer, ...]]:
    """Write results, read them back and answer."""
    write_results(root, **options)
    report = load_report(settings(), root, root / "matrix_report")
    return report, size_answers(report)


def test_a_quiet_host_is_answered_in_two_sentences_with_margin_tier_repeats_and_dispersion(tmp_path: Path) -> None:
    first, second = opening(*read(tmp_path))
    assert first == (
        "Use tp1-usp2 on 2 cards (10.0 % ahead of tp2-usp1), tp1-usp4 on 4 cards (10.0 % ahead of tp2-usp2) and "
        "tp2-usp4 on 8 cards (3.3 % ahead of tp1-usp8), which rests on the anchor tier (10 steps), 3 repeats in each "
        "of 2 windows, dispersion at most 0.7 %."
    )
    assert second == (
        "The 4-step ranking may be trusted on 2, 4 and 8 cards; another card group, software version or workload "
        "starts a new contract and asks the question again."
    )


def test_noise_is_not_decidable_and_names_the_worst_cell_and_the_cure(tmp_path: Path) -> None:
    report, answers = read(tmp_path, noise=10, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert (four.outcome, four.trusted) == ("not decidable", False)
    assert four.detail == (
        "because 4 of 4 cells are too noisy, the worst being tp1-usp4 at the few tier with a dispersion of 7.0 % "
        "(limit 3 %)"
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
    report, answers = read(tmp_path, anchor={"tp2-usp2": 0.92}, sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.outcome == "no difference"
    assert four.detail.startswith("tp1-usp4 and tp2-usp2 lie within the noise floor")
    assert "On 4 cards there is no difference" in opening(report, answers)[0]


def test_a_form_that_did_not_run_leaves_its_size_incomplete(tmp_path: Path) -> None:
    _, answers = read(tmp_path, failed=("tp2-usp2",), sizes=(4,))
    four = next(answer for answer in answers if answer.size == 4)
    assert four.detail == "because tp2-usp2 did not run through: crashed at start: out of memory"
    assert "did not run through: tp2-usp2" in four.warnings


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
