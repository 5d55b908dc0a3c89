"""A changed card group makes new anchor targets, of its own size only; nothing changed means nothing to do."""

from __future__ import annotations

import json

import pytest
from workflow_runs import make_project

pytestmark = pytest.mark.workflow

SMALL = {"matrix": {"sizes": [2, 4]}, "capture": {"enabled": False}, "selection": {"bandwidth": {"enabled": False}}}


def test_an_alarm_on_the_quad_plans_the_other_quad_and_nothing_of_the_pair(tmp_path):
    project = make_project(tmp_path / "project")
    config = project.configure(SMALL)
    project.snakemake("matrix_report", "--configfile", config)
    before = {item["size"]: item for item in project.read("contracts.json")["contracts"] if item["rank"] == 0}
    assert before[4]["cards"] == [0, 1, 2, 3]
    assert project.planned("matrix_report", "--configfile", config) == {}

    override = project.folder / "results" / ".virtualhost" / "override.yaml"
    override.write_text("health: [{cards: [3], state: Alarm}]\n")
    text = project.snakemake("-n", "matrix_report", "--configfile", config)
    jobs = project.planned("matrix_report", "--configfile", config)
    assert {rule: jobs[rule] for rule in ("group_smoke", "window_4", "cells", "contract_verdict", "build_report")} == {
        "group_smoke": 1,
        "window_4": 4,
        "cells": 1,
        "contract_verdict": 1,
        "build_report": 1,
    }
    assert "window_2" not in jobs
    measured = [line for line in text.splitlines() if "Measuring" in line or "smoke of" in line]
    assert measured
    assert not any(before[2]["id"] in line or before[4]["id"] in line for line in measured)

    project.snakemake("matrix_report", "--configfile", config)
    summary = project.read("matrix_report/summary.json")
    now = {item["size"]: item for item in summary["contracts"]}
    assert now[4]["cards"] == [4, 5, 6, 7]
    assert now[4]["version"] == 2
    assert now[2]["id"] == before[2]["id"]
    assert before[4]["id"] not in {cell["contract"] for cell in summary["cells"]}
    ledger = [json.loads(line) for line in project.text("contracts.jsonl").splitlines()]
    assert [(row["size"], row["version"]) for row in ledger] == [(2, 1), (4, 1), (4, 2)]
    assert {"field": "cards", "before": [0, 1, 2, 3], "after": [4, 5, 6, 7]} in ledger[-1]["changed"]
    assert before[4]["id"] in project.text("matrix_report/index.html"), "the retired contract is in the history"
    assert project.planned("matrix_report", "--configfile", config) == {}


def test_measuring_one_form_again_measures_no_other(tmp_path):
    project = make_project(tmp_path / "project")
    config = project.configure({**SMALL, "matrix": {"sizes": [4]}})
    project.snakemake("matrix_report", "--configfile", config)
    contract = project.read("contracts.json")["contracts"][0]["id"]
    session = project.folder / "results" / contract / "tp1-usp4" / "w1" / "session.json"
    measured = session.read_text()
    session.unlink()
    jobs = project.planned("matrix_report", "--configfile", config)
    assert jobs["window_4"] == 1
    assert "group_smoke" not in jobs
    changed = project.configure({**SMALL, "matrix": {"sizes": [4]}, "verdict": {"drift_pct": 4}}, "limits.yaml")
    session.write_text(measured)
    jobs = project.planned("matrix_report", "--configfile", changed)
    assert jobs["contract_verdict"] == 1
    assert "window_4" not in jobs


def test_a_form_and_a_window_taken_out_of_the_matrix_take_no_part_and_nothing_is_measured_again(tmp_path):
    project = make_project(tmp_path / "project")

    def configured(forms, windows):
        return project.configure({**SMALL, "matrix": {"sizes": [4], "windows": windows, "forms": {4: forms}}})

    project.snakemake("matrix_report", "--configfile", configured(["tp1-usp4", "tp2-usp2", "tp4-usp1"], 3))
    assert project.read("matrix_report/decision.json")["winner"] == "tp1-usp4"
    config = configured(["tp2-usp2", "tp4-usp1"], 2)
    jobs = project.planned("matrix_report", "--configfile", config)
    assert {"cells", "contract_verdict", "gates", "decision", "build_report"} <= jobs.keys()
    assert "window_4" not in jobs
    project.snakemake("matrix_report", "--configfile", config)
    summary = project.read("matrix_report/summary.json")
    assert {cell["form"] for cell in summary["cells"]} == {"tp2-usp2", "tp4-usp1"}
    assert {cell["window"] for cell in summary["cells"]} == {"1", "2", "all"}
    decision = project.read("matrix_report/decision.json")
    assert decision["winner"] == "tp2-usp2"
    assert decision["conditions"][0].startswith(
        "Not in the matrix any more, but measured faster under this contract: tp1-usp4 by "
    )
    assert "Not in the matrix any more" in project.text("matrix_report/index.html")
