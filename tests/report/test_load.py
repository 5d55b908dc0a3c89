"""Results are read as they are: retired and rejected groups apart, corrupted files named, nothing stops the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_results import contract, settings, write_results
from run_plans import contract_plan

from anchormatrix.records.plan import RunPlan
from anchormatrix.report.answer import size_answers
from anchormatrix.report.build import build_report
from anchormatrix.report.load import load_report
from anchormatrix.report.model import Report
from anchormatrix.report.source import Source, clean, clean_text
from anchormatrix.report.tables import sessions
from anchormatrix.store.files import write_json

pytestmark = pytest.mark.usefixtures("undrawn")


def load(root: Path) -> Report:
    """The report of a results folder."""
    return load_report(settings(), root, root / "matrix_report")


def test_a_complete_folder_has_no_problem_and_no_missing_part(tmp_path: Path) -> None:
    write_results(tmp_path)
    report = load(tmp_path)
    assert report.problems == ()
    assert [measured.contract.size for measured in report.measured] == [2, 4, 8]
    assert all(part.value for measured in report.measured for part in measured.attributions.values())
    assert report.measured_at == "2025-11-30T02:02:09+00:00"


def test_the_first_group_whose_smoke_is_not_rejected_is_the_current_one(tmp_path: Path) -> None:
    current = write_results(tmp_path, reject_first=4)
    report = load(tmp_path)
    four = report.of_size(4)
    assert four is not None
    assert (four.contract.id, four.contract.cards) == (current[4], (4, 5, 6, 7))
    assert [measured.contract.cards for measured in report.rejected] == [(0, 1, 2, 3)]


def test_a_retired_contract_is_in_the_history_and_has_no_cell(tmp_path: Path) -> None:
    write_results(tmp_path, retired=True, sizes=(4,))
    report = load(tmp_path)
    assert [(entry.id, entry.cards) for entry in report.retired] == [(contract((4, 5, 6, 7)).id, (4, 5, 6, 7))]
    assert {cell.contract for measured in report.measured for cell in measured.cells.value or ()} == {
        contract((0, 1, 2, 3)).id
    }


@pytest.fixture(scope="module")
def two_sizes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Whole results of two sizes, and their contracts; who damages a file puts it back."""
    root = tmp_path_factory.mktemp("two-sizes")
    return root, write_results(root, sizes=(2, 4))


@pytest.mark.parametrize(
    "name",
    ["verdict.json", "cells.csv", "smoke.json", "gates.json", "tp1-usp4/attribution.json", "tp1-usp4/w1/session.json"],
)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"schema": 9}', b"\xff\xfe\x00", b"a,b\n1,2\n", b"[" * 100_000]
)
def test_a_corrupted_file_is_named_and_the_rest_is_read(
    two_sizes: tuple[Path, dict[int, str]], name: str, content: bytes
) -> None:
    root, current = two_sizes
    path = root / current[4] / name
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        report = load(root)
    finally:
        path.write_bytes(whole)
    assert [problem.file for problem in report.problems] == [f"{current[4]}/{name}"]
    assert report.of_size(2) is not None
    assert size_answers(report)[0].headline == "tp1-usp2"


def test_a_torn_ledger_line_is_named_by_its_number(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(2,))
    with (tmp_path / "contracts.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"schema": 1, "id": "c2-')
    report = load(tmp_path)
    assert [problem.file for problem in report.problems] == ["contracts.jsonl"]
    assert report.problems[0].text.startswith("line 2: ")
    assert len(report.ledger) == 1


@pytest.mark.parametrize("value", ['"fast"', "null", "[]", "true", "NaN", "1e999", "{}"])
def test_a_value_of_the_wrong_type_makes_the_file_unusable_not_the_report(tmp_path: Path, value: str) -> None:
    current = write_results(tmp_path, sizes=(4,))
    path = tmp_path / current[4] / "tp1-usp4" / "attribution.json"
    text = path.read_text(encoding="utf-8").replace('"stage_ms": 1000.0', f'"stage_ms": {value}')
    path.write_text(text, encoding="utf-8")
    report = load(tmp_path)
    assert [problem.file for problem in report.problems] == [f"{current[4]}/tp1-usp4/attribution.json"]
    named = "not readable as JSON" if value == "NaN" else "stage_ms"
    assert named in report.problems[0].text


def test_a_contract_id_that_is_a_path_is_refused(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(2,))
    path = tmp_path / "contracts.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["contracts"][0]["id"] = "../../etc"
    path.write_text(json.dumps(values), encoding="utf-8")
    report = load(tmp_path)
    assert report.measured == ()
    assert "says id '../../etc' but its facts give" in report.problems[0].text


def with_session(root: Path, form: str, window: int, **values: object) -> None:
    """Store one more session of the four-card contract."""
    pattern = next(root.glob("c4-*/tp1-usp4/w1/session.json"))
    path = pattern.parents[2] / form / f"w{window}" / "session.json"
    stored = json.loads(pattern.read_text(encoding="utf-8"))
    write_json(path, {**stored, "form": form, "window": window, **values})


def test_what_an_earlier_configuration_left_behind_is_not_shown(tmp_path: Path) -> None:
    current = write_results(tmp_path, sizes=(4,))
    planned = contract_plan(contract((0, 1, 2, 3)), ("tp1-usp4", "tp2-usp2"))
    with_session(tmp_path, "tp4-usp1", 1)
    with_session(tmp_path, "tp1-usp4", 3)
    cells = tmp_path / current[4] / "cells.csv"
    text = cells.read_text(encoding="utf-8")
    rows = [line.replace("tp1-usp4", "tp4-usp1") for line in text.splitlines() if "tp1-usp4" in line]
    cells.write_text(text + "\n".join(rows) + "\n", encoding="utf-8")
    plan = RunPlan(contracts=(planned,))
    (four,) = load_report(settings(), tmp_path, tmp_path / "matrix_report", plan).measured
    assert (four.contract.id, four.forms) == (planned.id, ("tp1-usp4", "tp2-usp2"))
    assert {(timed.session.form, timed.session.window) for timed in four.sessions} == {
        (form, window) for form in ("tp1-usp4", "tp2-usp2") for window in (1, 2)
    }
    assert set(four.attributions) == {"tp1-usp4", "tp2-usp2"}


def test_a_session_left_out_on_purpose_is_no_failure(tmp_path: Path) -> None:
    write_results(tmp_path, sizes=(4,))
    with_session(tmp_path, "tp1-usp4", 3, status="skipped", reason="the choice is made", evidence=[])
    report = load(tmp_path)
    assert sessions.not_measured(report).rows == ()
    assert sessions.left_out(report).rows == (("4", "tp1-usp4", "3", "the choice is made"),)
    build_report(settings(), tmp_path, tmp_path / "matrix_report")
    page = (tmp_path / "matrix_report" / "index.html").read_text(encoding="utf-8")
    assert page.count("<h3>Left out on purpose</h3>") == 1
    evidence = (tmp_path / "matrix_report" / "evidence.md").read_text(encoding="utf-8")
    assert "## Left out on purpose\n\n| cards | form | window | reason |" in evidence


def test_a_missing_optional_file_is_no_problem_but_has_its_reason(tmp_path: Path) -> None:
    write_results(tmp_path, attribution=False, selection=False, sizes=(4,))
    report = load(tmp_path)
    assert report.problems == ()
    assert report.decision.missing == "no decision.json: the selection stage has not concluded"
    assert {part.missing for part in report.measured[0].attributions.values()} == {"no capture was analysed"}
    assert report.measured[0].gates.missing == "the gates were not evaluated for this contract"


@given(st.text())
def test_cleaned_text_is_printable_valid_and_bounded(text: str) -> None:
    found = clean_text(text)
    assert all(char.isprintable() or char in "\n\u00a0\u202f" for char in found)
    assert len(found) <= 4000
    found.encode("utf-8")


def test_cleaning_replaces_escapes_direction_marks_and_lone_surrogates() -> None:
    assert clean({"a\x1b": ["\u202eb", "\ud800"]}) == {"a\ufffd": ["\ufffdb", "\ufffd"]}


def test_a_file_outside_the_results_is_named_by_its_whole_path(tmp_path: Path) -> None:
    source = Source(tmp_path / "results")
    source.report(tmp_path / "decision.json", "torn")
    assert source.problems[0].file == str(tmp_path / "decision.json")
