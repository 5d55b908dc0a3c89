"""What the rules share: the checked configuration, the plan read from the live host, and the helpers that name paths."""

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

sys.path.insert(0, workflow.basedir)
from anchormatrix.planning import triggers as parameters
from anchormatrix.errors import AnchorMatrixError
from anchormatrix.hosts.owner import (
    answer_sigterm_aside,
    follow_owner,
    hold_results,
    name_owner,
)
from anchormatrix.planning.run import RunPlan, prepare_run, put_interpreter_first

RESULTS = "results"

if not Path("scripts/rules/measure_window.py").exists():
    raise WorkflowError(
        f"run snakemake in the project's folder (cd {workflow.basedir}): its commands and results/ are found from there"
    )

put_interpreter_first()
follow_owner()
name_owner()

try:
    # A thing that a user's file describes (the host, the model, …) replaces the default thing as a whole,
    # which Snakemake's own merging cannot do: so the files are merged by the library.
    RUN: RunPlan = prepare_run(
        workflow.config_settings.configfiles,
        workflow.config_settings.config,
        Path(RESULTS),
    )
except AnchorMatrixError as error:
    raise WorkflowError(str(error))

os.environ.update(RUN.environment)

for notice in RUN.notices:
    logger.warning(notice)

SETTINGS = RUN.settings
CONFIG = ancient(RUN.config_file)
LEDGER = f"{RESULTS}/contracts.jsonl"
REPORT = [
    f"{RESULTS}/matrix_report/{name}"
    for name in (
        "index.html",
        "summary.json",
        "cells.csv",
        "evidence.md",
        "decision.json",
    )
]
SIZES = SETTINGS.matrix.sizes
WINDOWS = range(1, RUN.windows + 1)


wildcard_constraints:
    contract=r"c\d+-[0-9a-f]{10}",
    form=r"tp[a-z0-9+-]+",
    window=r"\d+",


def lock_results():
    """Hold results/ for this run; the lock is released by the kernel when the run ends in any way."""
    try:
        hold_results(Path(RESULTS))
    except AnchorMatrixError as error:
        raise WorkflowError(str(error))


def contract_of(size):
    """The contract that a size is measured under: its first candidate whose smoke does not reject the group.

    Only a real run can know how a smoke ends; a dry run assumes that one not made yet will pass.
    """
    for planned in RUN.plan.of_size(size):
        contract = planned.contract.id
        if not workflow.dryrun:
            checkpoints.group_smoke.get(contract=contract)
        if not RUN.smoke_rejects(contract):
            return contract
    return None


def contracts():
    """The contracts of all sizes that have a usable group."""
    return [contract for size in SIZES if (contract := contract_of(size))]


def of_contracts(pattern):
    """An input function: the pattern for every contract that is measured."""
    return lambda wildcards: [
        pattern.format(contract=contract) for contract in contracts()
    ]


def of_forms(pattern):
    """An input function: the pattern for every form of every contract that is measured."""
    return lambda wildcards: [
        pattern.format(contract=contract, form=form)
        for contract in contracts()
        for form in RUN.forms_of(contract)
    ]


def sessions(wildcards):
    """All sessions of one contract, or of every contract when none is named, in the order they run.

    In another order Snakemake would follow the chain from its end, and a long one is deeper than it can go.
    """
    named = [wildcards.contract] if "contract" in wildcards.keys() else contracts()
    return [
        f"{RESULTS}/{contract}/{form}/w{window}/session.json"
        for contract in named
        for form, window in RUN.sessions_of(contract)
    ]


def cell_sessions(wildcards):
    """The sessions of the form named by cell=FORM/TIER and of the reference form of its pair."""
    if SETTINGS.cell is None:
        raise WorkflowError(
            "rerun_cell: which cell? give it as --config cell=FORM/TIER, such as cell=tp1-usp4/anchor"
        )
    return [
        f"{RESULTS}/{contract}/{form}/w{window}/session.json"
        for contract in contracts()
        for form in RUN.again(contract)
        for window in WINDOWS
    ]


def contracts_if_new(wildcards):
    """The list of contracts, for a contract that has no file of its own yet."""
    made = Path(RESULTS) / wildcards.contract / "contract.json"
    return [] if made.exists() else [f"{RESULTS}/contracts.json"]


def before_session(wildcards):
    """What must come before a session that has to run: the smoke of its group, and the session just before it.

    A session that has its result depends on neither, so measuring one form again, or a new smoke, measures no other
    form again. One that must run depends on both in earnest: Snakemake looks for no other reason to run a job that
    lies behind another one, so ancient() would hide that it is asked for again.
    """
    where = wildcards.contract, wildcards.form, int(wildcards.window)
    if not RUN.must_run(*where):
        return []
    folder = f"{RESULTS}/{wildcards.contract}"
    previous = RUN.session_before(*where)
    earlier = (
        [f"{folder}/{previous[0]}/w{previous[1]}/session.json"] if previous else []
    )
    return [f"{folder}/smoke.json", *earlier, RUN.asked]


def before_smoke(wildcards):
    """What makes a smoke run that is needed although an older one lies there."""
    return [RUN.asked] if RUN.smoke_must_run(wildcards.contract) else []


def smokes(wildcards):
    """The smoke of every group that a size was tried on."""
    contracts()
    return [
        f"{RESULTS}/{planned.contract.id}/smoke.json"
        for planned in RUN.plan.contracts
        if planned.rank == 0
        or (Path(RESULTS) / planned.contract.id / "smoke.json").exists()
    ]


def attributions(wildcards):
    """The attribution of every form, where captures are made."""
    return (
        of_forms(f"{RESULTS}/{{contract}}/{{form}}/attribution.json")(wildcards)
        if SETTINGS.capture.enabled
        else []
    )


def forms_attributed(wildcards):
    """The attributions of one contract's forms, where captures are made."""
    forms = RUN.forms_of(wildcards.contract) if SETTINGS.capture.enabled else []
    return [f"{RESULTS}/{wildcards.contract}/{form}/attribution.json" for form in forms]


def bandwidths(wildcards):
    """The size sweep of a contract's group, where it is made."""
    return (
        [f"{RESULTS}/bandwidth/{wildcards.contract}.json"]
        if SETTINGS.selection.bandwidth.enabled
        else []
    )


def before_bandwidth(wildcards):
    """The smoke comes first, once; a sweep made already does not depend on it."""
    made = Path(RESULTS) / "bandwidth" / f"{wildcards.contract}.json"
    return (
        [] if made.exists() else [ancient(f"{RESULTS}/{wildcards.contract}/smoke.json")]
    )


def sessions_of_the_night(wildcards):
    """All sessions; they are made anew because the run was given a night."""
    if SETTINGS.night is None:
        raise WorkflowError(
            "nightly needs the night: run scripts/nightly.py, or snakemake --profile profiles/nightly nightly"
        )
    return sessions(wildcards)
