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
        REPORT,


# After a card fault: that form and the reference form of its pair again, after a fresh smoke.
rule rerun_cell:
    input:
        cell_sessions,
        REPORT,


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
include: "rules/nightly.smk"


onstart:
    lock_results()
