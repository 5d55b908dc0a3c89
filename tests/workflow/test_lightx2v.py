"""The example of LightX2V on the virtual host: the whole workflow, at the default sizes, in another engine's words."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from workflow_runs import ROOT, Project, default_section, make_project

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("lightx2v-run")]  # one worker makes the run
EXAMPLE = yaml.safe_load((ROOT / "config" / "examples" / "nvidia-lightx2v.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The example as it stands, on other cards: host and device are the default run's, the version is a text."""
    project = make_project(tmp_path_factory.mktemp("lightx2v") / "project")
    config = project.configure(
        {
            **EXAMPLE,
            "host": project.virtual_host("virtualhost/scenarios/healthy.yaml"),
            "device": default_section("device"),
            "engine": {**EXAMPLE["engine"], "version": "f8aee98", "request_timeout_s": 30, "ready_timeout_s": 30},
            "health": {"busy_wait_s": 0.5},
            "matrix": {**EXAMPLE["matrix"], "sizes": [2, 4, 8]},
            "selection": {"bandwidth": {"enabled": False}},
        }
    )
    project.snakemake("matrix_report", "--configfile", config)
    return project


def test_every_size_has_a_winner_and_both_windows_agree(run: Project) -> None:
    summary = run.read("matrix_report/summary.json")
    sizes = {contract["id"]: contract["size"] for contract in summary["contracts"]}
    found = {sizes[verdict["contract"]]: (verdict["status"], verdict["winner"]) for verdict in summary["verdicts"]}
    assert {size: status for size, (status, _) in found.items()} == dict.fromkeys((2, 4, 8), "extrapolates")
    assert {size: winner.count("tp1-usp") for size, (_, winner) in found.items()} == dict.fromkeys((2, 4, 8), 1)


def test_every_form_was_proved_timed_by_all_ranks_and_computed_the_same_picture(run: Project) -> None:
    sessions = sorted((run.folder / "results").glob("*/*/w*/session.json"))
    assert len(sessions) == 12
    for path in sessions:
        session = run.read(str(path.relative_to(run.folder / "results")))
        assert (session["status"], session["proof"]["ok"], session["proof"]["failures"]) == ("measured", True, [])
        assert session["proof"]["ranks_seen"] == session["proof"]["ranks_expected"]
        assert session["command"][0] == "torchrun"
        assert "has no profiler" in session["capture"]["why"] or "enabled is off" in session["capture"]["why"]
    outputs = sorted((run.folder / "results").glob("*/outputs.json"))
    told = [run.read(str(path.relative_to(run.folder / "results"))) for path in outputs]
    assert {one["status"] for each in told for one in each["sessions"]} == {"same"}


def test_requests_are_timed_step_by_step(run: Project) -> None:
    (table, *_) = sorted((run.folder / "results").glob("*/tp1-usp2/w1/requests.csv"))
    head, *rows = (line.split(",") for line in Path(table).read_text(encoding="utf-8").splitlines())
    cells = [dict(zip(head, row, strict=True)) for row in rows]
    assert {cell["basis"] for cell in cells} == {"each step"}
    assert {(cell["steps"], cell["iterations"]) for cell in cells} == {("4", "4"), ("10", "10")}
