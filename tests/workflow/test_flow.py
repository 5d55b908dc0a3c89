"""Measuring is the same with any number of cores, with and without a profile; a dry run is a promise."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from workflow_runs import Project, make_project

pytestmark = pytest.mark.workflow

QUICK: dict[str, Any] = {
    "matrix": {"sizes": [2, 4], "windows": 1},
    "capture": {"enabled": False},
    "selection": {"bandwidth": {"enabled": False}},
}
TWO_WINDOWS = {**QUICK, "matrix": {"sizes": [2, 4], "windows": 2}}
_EVENT = re.compile(r"^(?:Job \d+: (?P<job>.+)|Finished jobid: .+)$", re.MULTILINE)
_ALONE = ("Measuring ", "Four-step smoke ", "Size sweep ")
NO_PROFILE = ("--workflow-profile", "none")


def jobs(text: str) -> list[str]:
    """The jobs that a run began or a dry run announces, without how far it is and what is left."""
    return [re.sub(r"(in window .*?): .*", r"\1", found["job"]) for found in _EVENT.finditer(text) if found["job"]]


def beside(text: str) -> list[str]:
    """The jobs that began while another one measured."""
    found, measuring = [], ""
    for event in _EVENT.finditer(text):
        job = event["job"] or ""
        found += [job] if job and measuring else []
        measuring = job if job.startswith(_ALONE) else ""
    return found


def seen(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder: name, time and content."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_measuring_is_the_same_with_any_number_of_cores_and_without_a_profile(tmp_path):
    runs = {}
    for name, options in {"one": (), "many": ("--cores", "8", *NO_PROFILE)}.items():
        project = make_project(tmp_path / name)
        text = project.snakemake("matrix_report", *options, "--configfile", project.configure(TWO_WINDOWS))
        assert beside(text) == []
        measured = [job for job in jobs(text) if job.startswith(_ALONE)]
        runs[name] = measured, project.text("matrix_report/cells.csv")
        assert project.planned("matrix_report", *options, "--configfile", "test.yaml") == {}
    assert runs["one"] == runs["many"]
    assert [re.sub(r"c(\d)-\S+", r"c\1", job) for job in runs["one"][0]] == [
        "Four-step smoke of c2",
        "Four-step smoke of c4",
        "Measuring tp1-usp2 in window 1 of c2",
        "Measuring tp2-usp1 in window 1 of c2",
        "Measuring tp2-usp1 in window 2 of c2",
        "Measuring tp1-usp2 in window 2 of c2",
        "Measuring tp1-usp4 in window 1 of c4",
        "Measuring tp2-usp2 in window 1 of c4",
        "Measuring tp2-usp2 in window 2 of c4",
        "Measuring tp1-usp4 in window 2 of c4",
    ]


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Project:
    project = make_project(tmp_path_factory.mktemp("flow") / "project")
    project.configure(QUICK)
    promised = jobs(project.snakemake("-n", "matrix_report", "--configfile", "test.yaml"))
    assert not (project.folder / "results").exists()
    text = project.snakemake("matrix_report", "--cores", "8", "--configfile", "test.yaml")
    assert sorted(jobs(text)) == sorted(promised)
    return project


@pytest.mark.xdist_group("flow")  # one worker makes the complete run
@pytest.mark.parametrize(
    "deleted",
    [
        ["contracts.json"],
        ["contracts.json", "c*/contract.json"],
        ["c2-*/smoke.json", "c4-*/tp1-usp4/w1/session.json"],
        ["c2-*", "matrix_report/figures/step-time.png"],
    ],
    ids=lambda deleted: "+".join(deleted).replace("/", "_"),
)
def test_a_dry_run_lists_exactly_what_the_run_then_does(complete: Project, deleted: list[str]):
    results = complete.folder / "results"
    for path in [path for pattern in deleted for path in results.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    promise_is_kept(complete)


@pytest.mark.xdist_group("flow")  # one worker makes the complete run
@pytest.mark.parametrize("damaged", ["c2-*/tp1-usp2/w1/session.json", "matrix_report/index.html", "contracts.jsonl"])
def test_a_dry_run_counts_a_damaged_result_and_leaves_it_where_it_is(complete: Project, damaged: str):
    (path,) = (complete.folder / "results").glob(damaged)
    path.write_bytes(path.read_bytes()[1:])
    promise_is_kept(complete)


def promise_is_kept(project: Project) -> None:
    before = seen(project.folder / "results")
    promised = jobs(project.snakemake("-n", "matrix_report", "--configfile", "test.yaml"))
    assert seen(project.folder / "results") == before
    text = project.snakemake("matrix_report", "--cores", "8", "--configfile", "test.yaml")
    assert promised
    assert sorted(jobs(text)) == sorted(promised)
    assert project.planned("matrix_report", "--configfile", "test.yaml") == {}
