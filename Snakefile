"""From a cold accelerator host to a decision: which parallel form of a diffusion transformer to run on it."""

from snakemake.utils import min_version

min_version("9.20")


report: "rules/captions/workflow.rst"


include: "rules/common.smk"
include: "rules/flow.smk"


# The targets people call by name; topology, health and contract are rules of their own.
# The report asks for everything it rests on, too: a result that was deleted or set aside is made again.
rule matrix_report:
    input:
        f"{RESULTS}/topology.json",
        f"{RESULTS}/health.json",
        f"{RESULTS}/contracts.json",
        needs(FILES.smokes),
        needs(FILES.sessions),
        needs(FILES.requests),
        needs(FILES.attributions),
        of_contracts("outputs.json"),
        of_contracts("cells.csv"),
        of_contracts("verdict.json"),
        of_contracts("gates.json"),
        needs(FILES.bandwidths),
        REPORT,
    message:
        "The report is in {RESULTS}/matrix_report/index.html"


# After a card fault: that form and the reference form of its pair again, after a fresh smoke.
rule rerun_cell:
    input:
        needs(FILES.cell_sessions),
        REPORT,
    message:
        "The cell is measured again; old and new value are in {RESULTS}/matrix_report/index.html"


rule verdict:
    input:
        of_contracts("verdict.json"),
    message:
        "The verdicts are in {RESULTS}/<contract>/verdict.json"


rule matrix:
    input:
        needs(FILES.sessions),
    message:
        "The sessions are in {RESULTS}/<contract>/<form>/w<window>/"


rule smoke:
    input:
        needs(FILES.smokes),
    message:
        "The smokes are in {RESULTS}/<contract>/smoke.json"


include: "rules/host.smk"
include: "rules/smoke.smk"
include: "rules/matrix.smk"
include: "rules/attribution.smk"
include: "rules/selection.smk"
include: "rules/report.smk"
include: "rules/nightly.smk"


share_host()


onstart:
    keep_promise()
    answer_sigterm_aside()
