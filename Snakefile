"""From a cold accelerator host to a decision: which parallel form of a diffusion transformer to run on it."""

from snakemake.utils import min_version

min_version("9.20")


report: "report/workflow.rst"


include: "rules/common.smk"


# The targets people call by name; topology, health and contract are rules of their own.
# The report asks for the evidence it rests on, too: a result that was deleted is measured again.
rule matrix_report:
    input:
        sessions,
        attributions,
        of_contracts(f"{RESULTS}/{{contract}}/verdict.json"),
        multiext(
            f"{RESULTS}/matrix_report/",
            "index.html",
            "summary.json",
            "cells.csv",
            "evidence.md",
            "decision.json",
        ),


rule verdict:
    input:
        of_contracts(f"{RESULTS}/{{contract}}/verdict.json"),


rule matrix:
    input:
        sessions,


rule smoke:
    input:
        smokes,


include: "rules/host.smk"
include: "rules/smoke.smk"
include: "rules/matrix.smk"
include: "rules/attribution.smk"
include: "rules/selection.smk"
include: "rules/report.smk"


onstart:
    lock_results()
