"""What the rules share: the checked configuration, the plan read from the live host, and the helpers that name paths."""

import atexit
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from anchormatrix.errors import AnchorMatrixError, shown
from anchormatrix.hosts.owner import (
    answer_sigterm_aside,
    follow_owner,
    hold_results,
    name_owner,
)
from anchormatrix.planning import triggers as parameters
from anchormatrix.planning.run import Run, prepare_run, put_interpreter_first
from anchormatrix.planning.run_files import RunFiles
from anchormatrix.records.night import Place
from anchormatrix.report.plots.figures import NAMES as FIGURES, SUFFIXES

# The commands find the library where it is installed, not beside the Snakefile.
try:
    version("anchormatrix")
except PackageNotFoundError:
    raise WorkflowError(
        f"anchormatrix is not installed for {sys.executable}: run .venv/bin/snakemake (any make target makes .venv), or"
        " pip install -e . in the project's folder"
    )

RESULTS = "results"

if not Path("scripts/rules/measure_window.py").exists():
    raise WorkflowError(
        f"run snakemake in the project's folder (cd {workflow.basedir}): its commands and results/ are found from there"
    )


def refuse(error):
    """End with the one line that the user needs: Snakemake's own would add the place in this file, where no mistake is."""
    raise SystemExit(f"snakemake: {error}")


if set("{}") & set(
    workflow.basedir
):  # rules name their environments by path, and Snakemake fills in what is in braces
    refuse(
        f"{workflow.basedir!r}: Snakemake takes braces in a folder's name for wildcards; rename it, or clone elsewhere"
    )

put_interpreter_first()
follow_owner()
name_owner()

try:
    # A thing that a user's file describes (the host, the model, …) replaces the default thing as a whole,
    # which Snakemake's own merging cannot do: so the files are merged by the library.
    RUN: Run = prepare_run(
        workflow.config_settings.configfiles,
        workflow.config_settings.config,
        Path(RESULTS),
    )
except AnchorMatrixError as error:
    refuse(error)

for notice in RUN.notices:
    logger.warning(shown(notice))

SETTINGS = RUN.settings
CONFIG = ancient(RUN.config_file)
PLAN = ancient(RUN.plan_file)
LEDGER = f"{RESULTS}/contracts.jsonl"
REPORT = [
    f"{RESULTS}/matrix_report/{name}"
    for name in (
        "index.html",
        "summary.json",
        "cells.csv",
        "evidence.md",
        "decision.json",
        *(f"figures/{name}.{suffix}" for name in FIGURES for suffix in SUFFIXES),
    )
]
SIZES = SETTINGS.matrix.sizes


wildcard_constraints:
    contract=r"c\d+-[0-9a-f]{10}",
    form=r"tp[a-z0-9+-]+",
    window=r"\d+",


def smoked(contract):
    """Wait for the smoke of a group; a dry run cannot know how it will end and assumes that it passes."""
    if not workflow.dryrun:
        checkpoints.group_smoke.get(contract=contract)


FILES = RunFiles(RUN, smoked)


def tell_expected():
    """End a dry run with what its jobs measure and how long that is expected to take."""
    if not workflow.dryrun or workflow.dag is None:
        return
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))
    sessions = {
        Place(job.wildcards.contract, job.wildcards.form, int(job.wildcards.window))
        for job in jobs
        if job.rule.name.startswith("window_")
    }
    of_group = {
        name: [job.wildcards.contract for job in jobs if job.rule.name == name]
        for name in ("group_smoke", "bandwidth")
    }
    if sessions or any(of_group.values()):
        ordered = [place for place in RUN.planned_sessions() if place in sessions]
        found = RUN.expected(ordered, of_group["group_smoke"], of_group["bandwidth"])
        print(found.words, file=sys.stderr)


# Snakemake knows that this is a dry run after it has read the rules, and runs no hook at the end of one.
atexit.register(tell_expected)


def needs(files, *names):
    """An input function: the files that the library names for the wildcards of these names."""

    def of_job(wildcards):
        try:
            return files(*(getattr(wildcards, name) for name in names))
        except AnchorMatrixError as error:
            refuse(error)

    return of_job


def of_contracts(name):
    """An input function: the file of this name in the folder of every contract that is measured."""
    return needs(lambda: FILES.of_contracts(f"{RESULTS}/{{contract}}/{name}"))
