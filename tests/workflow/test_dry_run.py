"""A dry run ends with what its own jobs measure and how long that is expected to take, and changes nothing."""

from __future__ import annotations

import pytest
from workflow_runs import make_project

pytestmark = pytest.mark.workflow

SMALL = {
    "matrix": {"sizes": [2], "windows": 1},
    "capture": {"enabled": False},
    "selection": {"bandwidth": {"enabled": False}},
}


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_a_dry_run_ends_with_sessions_and_time(tmp_path):
    project = make_project(tmp_path / "project")
    config = project.configure(SMALL)
    before = last_line(project.snakemake("-n", "matrix_report", "--configfile", config))
    assert before.startswith("To measure: 2 sessions, 1 smoke. Expected on the cards: ")
    assert "nothing of it timed yet: reckoned from 3 loads (starts of 2 s for 40 GB of weights, " in before
    assert not (project.folder / "results").exists()
    assert "Expected on the cards" not in project.snakemake("-n", "topology", "--configfile", config)

    project.snakemake("smoke", "--configfile", config)
    smoked = last_line(project.snakemake("-n", "matrix_report", "--configfile", config))
    assert smoked.startswith("To measure: 2 sessions. Expected on the cards: ")
    assert smoked.endswith(", by the smoke's step.")
