"""Every file that a rule's command reads is declared as its input."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from workflow_runs import Project, default_section, make_project

pytestmark = pytest.mark.workflow

TRACED = Path(__file__).resolve().parents[1] / "support" / "traced"

# What a command may open without declaring it, below results/, and why.
EXEMPT = {
    ".virtualhost/*": "the state of the virtual host, which is another machine in all but name",
    ".scratch/*": "the same: what a server leaves on its host until it is fetched",
    ".run/matplotlib/*": "matplotlib's list of fonts, made when it is not there",
    ".run/seals": "the digests of results, which every command that writes one appends to",
    "*.part": "its own result, read for its digest before it takes its place",
    "contracts.jsonl": "a ledger that commands also append to: an input that its own job changes is always newer",
    "decisions.jsonl": "the same",
    "reruns.jsonl": "the same",
    "c*/suspect.json": "marks that any measuring command may set or take back",
    "c*/.capture.*": "the same files while they are fetched",
    "c*/capture/*": "the profiler's files: the session names their folder; packed or dropped once attributed",
}


def test_a_command_reads_what_its_rule_declares_and_nothing_else(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    opened = tmp_path / "opened"
    config = project.configure(
        {
            "matrix": {**default_section("matrix"), "sizes": [2, 4]},
            "nightly": {**default_section("nightly"), "deadline": "11:59"},
        }
    )
    night = ("--config", "night=auto")
    traced = {"PYTHONPATH": str(TRACED), "OPENED_FILES": str(opened)}
    project.snakemake("nightly", "--configfile", config, *night, env=traced)
    jobs = list(_jobs(project))
    read = _read_by_command(project, opened)
    rules = {job["rule"] for job in jobs}
    assert {"cells", "gates", "group_smoke", "window_2", "attribute", "build_report", "nightly_report"} <= rules
    assert len(read) == len({job["shellcmd"] for job in jobs}), "a command of a rule was not traced"
    undeclared: dict[str, set[str]] = defaultdict(set)
    for out, files in read.items():
        job = _job_of(jobs, out)
        known = {Path(name) for name in (*job["input"], *job["outputs"])}
        undeclared[job["rule"]] |= {str(file) for file in files - known}
    assert {rule: files for rule, files in undeclared.items() if files} == {}
    assert "Nothing to be done" in project.snakemake("-n", "nightly", "--configfile", config, *night)


def _jobs(project: Project) -> Iterator[dict[str, Any]]:
    """What Snakemake noted of every job, with all its outputs."""
    noted = [
        (base64.b64decode(path.name).decode(), json.loads(path.read_text(encoding="utf-8")))
        for path in (project.folder / ".snakemake" / "metadata").iterdir()
    ]
    outputs: dict[str, list[str]] = defaultdict(list)
    for output, job in noted:
        outputs[job["shellcmd"]].append(output)
    for output, job in noted:
        yield {**job, "output": output, "outputs": outputs[job["shellcmd"]]}


def _job_of(jobs: list[dict[str, Any]], out: str) -> dict[str, Any]:
    """The job that made the file, or the files in the folder, that a command was told to write."""
    return next(job for job in jobs if job["output"] == out or job["output"].startswith(f"{out}/index.html"))


def _read_by_command(project: Project, opened: Path) -> dict[str, set[Path]]:
    """``--out`` of every command -> the files below results/ that it read and has no reason to read undeclared."""
    results = project.folder.resolve() / "results"
    read: dict[str, set[Path]] = defaultdict(set)
    for line in opened.read_text(encoding="utf-8").splitlines():
        noted = json.loads(line)
        file = Path(noted["file"])
        files = read[noted["command"][noted["command"].index("--out") + 1]]
        if file.is_relative_to(results) and not _exempt(str(file.relative_to(results))):
            files.add(file.relative_to(project.folder.resolve()))
    return read


def _exempt(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in EXEMPT)
