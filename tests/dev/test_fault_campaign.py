"""The cheapest faults of the campaign, one of each kind; all of them are run by hand with scripts/fault_campaign.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaigns.faults.catalogue import FAULTS, MARKED, SAME, named
from campaigns.faults.document import write_section
from campaigns.faults.judging import (
    Undisturbed,
    judge_end,
    judge_kept,
    judge_numbers,
    judge_report,
    undisturbed_from,
)
from campaigns.faults.project import Project, make_project
from campaigns.faults.running import Ground, prepare_ground, run_fault

from anchormatrix.errors import InputError

CHEAP = ("damaged_session", "damaged_ledger", "kill_cells")


def cell(step_s: float = 5.0, *, window: str = "1", usable: bool = True) -> dict:
    where = {"contract": "c4-0123456789", "form": "tp1-usp4", "tier": "few", "window": window}
    return {**where, "step_s": step_s, "usable": usable, "reason": "" if usable else "dispersion 9 %"}


def summary(*cells: dict, winner: str | None = "tp1-usp4") -> dict:
    verdict = {"contract": "c4-0123456789", "status": "extrapolates", "winner": winner}
    return {"cells": list(cells), "verdicts": [verdict]}


def references() -> dict[str, Undisturbed]:
    return {"same": undisturbed_from(summary(cell()))}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "results" / "matrix_report").mkdir(parents=True)
    return Project(tmp_path)


def write_summary(project: Project, values: dict) -> None:
    (project.results / "matrix_report" / "summary.json").write_text(json.dumps(values))


def test_there_are_at_least_thirty_faults_and_each_has_a_name_of_its_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
    assert all(fault.cure for fault in FAULTS if fault.then == MARKED)


def test_an_end_needs_a_report_or_one_clear_error(project: Project):
    assert not judge_end(None, "", project, killed=False).right
    assert not judge_end(1, "something", project, killed=False).right
    assert judge_end(1, "measure_window.py: card 1 says Alarm", project, killed=False).right
    assert not judge_end(1, "x.py: y\nTraceback (most recent call last):\n", project, killed=False).right
    assert not judge_end(0, "", project, killed=False).right, "there is no report"
    write_summary(project, summary(cell()))
    assert judge_end(0, "", project, killed=False).right


def test_a_finished_session_may_neither_vanish_nor_change():
    assert judge_kept({"a": b"1"}, {"a": b"1", "b": b"2"}, set()).right
    assert not judge_kept({"a": b"1"}, {"a": b"2"}, set()).right
    assert not judge_kept({"a": b"1"}, {}, set()).right
    assert judge_kept({"a": b"1"}, {}, {"a"}).right, "the fault itself damaged it"


def test_a_usable_number_must_be_the_undisturbed_one():
    assert judge_numbers([summary(cell(5.01)), None], references()).right
    assert not judge_numbers([summary(cell(5.2))], references()).right
    assert judge_numbers([summary(cell(5.2, usable=False))], references()).right
    assert not judge_numbers([summary(cell(window="7"))], references()).right, "nobody measured that"


def test_the_next_report_is_the_undisturbed_one_or_explains_itself(project: Project):
    write_summary(project, summary(cell()))
    assert judge_report(project, 0, "same", references()).right
    assert not judge_report(project, 1, "same", references()).right
    write_summary(project, summary(winner=None))
    assert not judge_report(project, 0, "marked", references()).right
    write_summary(project, summary(cell(usable=False), winner=None))
    assert judge_report(project, 0, "marked", references()).right
    assert not judge_report(project, 0, "same", references()).right


def test_only_the_marked_part_of_a_document_is_replaced(tmp_path: Path):
    path = tmp_path / "page.md"
    path.write_text("# Title\n<!-- faults -->\nold\n<!-- /faults -->\nend\n")
    write_section(path, "faults", "| new |")
    assert path.read_text() == "# Title\n<!-- faults -->\n| new |\n<!-- /faults -->\nend\n"
    with pytest.raises(InputError, match="no place for the result"):
        write_section(path, "nights", "x")


def test_a_process_of_another_folder_is_not_taken_for_ours(tmp_path: Path):
    assert make_project(tmp_path / "a").processes() == {}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return prepare_ground(tmp_path_factory.mktemp("undisturbed"), [SAME])


@pytest.mark.workflow
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize("name", CHEAP)
def test_the_workflow_stands_a_fault(name: str, tmp_path: Path, ground: Ground):
    outcome = run_fault(named(name), tmp_path / name, ground)
    assert not outcome.skipped
    assert outcome.right, {column: judged.text for column, judged in outcome.judgements.items() if not judged.right}
