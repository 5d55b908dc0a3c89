"""Same result: what the report says of outputs, also on an unstable host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_results import settings, write_results

from anchormatrix.report.build import build_report
from anchormatrix.report.model import Report
from anchormatrix.report.tables import outputs

pytestmark = pytest.mark.usefixtures("undrawn")


def build(root: Path, **options: Any) -> Report:
    write_results(root, selection=False, attribution=False, **options)
    return build_report(settings(), root, root / "matrix_report")


def results_of(report: Report) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Fingerprint, repeats and result of each form and tier."""
    return {(row[1], row[2]): (row[3], row[4], row[5]) for row in outputs.table(report).rows}


def test_every_form_is_held_against_one_rank(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(1, 2), prints={"tp2-usp1": "other"}, distances={"tp1-usp2": 0, "tp2-usp1": 3.1e-7})
    assert results_of(report) == {
        ("tp1-usp1", "few, 4 steps"): ("same4", "identical in 10 requests, 2 windows", "the reference"),
        ("tp1-usp1", "anchor, 10 steps"): ("same10", "identical in 6 requests, 2 windows", "the reference"),
        ("tp1-usp2", "few, 4 steps"): (
            "same4",
            "identical in 10 requests, 2 windows",
            "identical to tp1-usp1 on 1 card",
        ),
        ("tp1-usp2", "anchor, 10 steps"): (
            "same10",
            "identical in 6 requests, 2 windows",
            "identical to tp1-usp1 on 1 card",
        ),
        ("tp2-usp1", "few, 4 steps"): (
            "other4",
            "identical in 10 requests, 2 windows",
            "differs from tp1-usp1 on 1 card",
        ),
        ("tp2-usp1", "anchor, 10 steps"): (
            "other10",
            "identical in 6 requests, 2 windows",
            "differs from tp1-usp1 on 1 card",
        ),
    }
    assert outputs.reading(report) == (
        "2 cards: tp1-usp2 bit-identical to tp1-usp1 on 1 card; tp2-usp1 not bit-identical to tp1-usp1 on 1 card, "
        "its own check: largest relative difference 3.1e-07, tolerance 1.0e-05: holds."
    )
    assert outputs.table(report).bad == frozenset()


def test_without_one_rank_the_first_form_of_the_size_is_the_reference(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(2, 4))
    assert results_of(report)["tp2-usp2", "few, 4 steps"][2] == "identical to tp1-usp4"
    assert outputs.reading(report) == (
        "2 cards: tp2-usp1 bit-identical to tp1-usp2. 4 cards: tp2-usp2 bit-identical to tp1-usp4. "
        "No engine logged a check of its own, so this rests on the responses alone."
    )


def test_outputs_that_vary_or_are_not_fingerprinted_are_not_comparable(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(1, 2), prints={"tp1-usp2": "", "tp2-usp1": "*"})
    found = results_of(report)
    assert found["tp1-usp2", "few, 4 steps"] == ("–", "–", "not comparable: the server gives no fingerprint")
    assert found["tp2-usp1", "anchor, 10 steps"][1:] == (
        "6 different outputs in 6 requests, 2 windows",
        "not comparable: its own outputs differ with one seed",
    )
    assert outputs.reading(report) == "No two forms have outputs that could be compared."
    assert len(outputs.table(report).bad) == 2


def test_a_reference_that_varies_gives_way_to_the_first_form_of_the_size(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(1, 2), prints={"tp1-usp1": "*"})
    assert results_of(report)["tp2-usp1", "few, 4 steps"][2] == "identical to tp1-usp2"


def test_a_difference_that_no_check_explains_is_marked(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(2,), prints={"tp2-usp1": "other"})
    assert outputs.table(report).bad == {2, 3}
    assert outputs.reading(report).startswith("2 cards: tp2-usp1 not bit-identical to tp1-usp2, its own check: none")


def test_a_void_form_shows_its_failed_check_and_no_output(tmp_path: Path) -> None:
    report = build(tmp_path, sizes=(1, 2), distances={"tp2-usp1": 0.02})
    assert outputs.table(report).rows[-1] == (
        "2", "tp2-usp1", "–", "–", "–", "not comparable: void", "the outputs were not compared",
        "largest relative difference 2.0e-02, tolerance 1.0e-05: fails",
    )  # fmt: skip


def test_outputs_of_a_contaminated_session_count_although_its_times_do_not(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(2,), selection=False)
    for path in (tmp_path / current[2] / "tp2-usp1").glob("w*/session.json"):
        path.write_text(path.read_text().replace('"status": "measured"', '"status": "contaminated"'))
    report = build_report(settings(), tmp_path, tmp_path / "matrix_report")
    assert results_of(report)["tp2-usp1", "few, 4 steps"] == (
        "same4",
        "identical in 10 requests, 2 windows",
        "identical to tp1-usp2",
    )


def test_sessions_without_requests_are_not_comparable(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(2,), selection=False)
    for path in (tmp_path / current[2]).rglob("requests.csv"):
        path.unlink()
    report = build_report(settings(), tmp_path, tmp_path / "matrix_report")
    assert {row[2] for row in results_of(report).values()} == {"not comparable: no request of this tier was recorded"}


def test_both_are_on_the_page_in_the_markdown_and_in_the_summary(tmp_path: Path) -> None:
    build(tmp_path, sizes=(1, 2), noise=20, distances={"tp1-usp2": 0.0})
    out = tmp_path / "matrix_report"
    page, text = (out / "index.html").read_text(), (out / "evidence.md").read_text()
    for words in ("Same result", "Speed-up between sizes", "identical to tp1-usp1 on 1 card", "1.80 ×"):
        assert words in page and words in text
    assert not re.search(r"(?<!and )\b1 cards", page + text)
    assert "unstable: orientation only" in page and "the topology changes with it" in page
    summary = json.loads((out / "summary.json").read_text())
    found = next(row for row in summary["outputs"] if (row["form"], row["tier"]) == ("tp1-usp2", "anchor"))
    assert (found["fingerprints"], found["outcome"], found["reference"]) == (
        ["same10"],
        "identical",
        "tp1-usp1 on 1 card",
    )
    assert found["check"] == {"ok": True, "relative_distance": 0.0, "limit": 1e-05}
    gained = next(row for row in summary["speedups"] if row["form"] == "tp1-usp2")
    assert (round(gained["speedup"], 2), gained["base_form"], gained["usable"]) == (1.8, "tp1-usp1", False)
