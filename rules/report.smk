"""The report: one page, the tables and figures in it, and what other programs read."""


rule build_report:
    input:
        needs(FILES.smokes),
        needs(FILES.sessions),
        needs(FILES.requests),
        needs(FILES.attributions),
        needs(FILES.bandwidths),
        ancient(of_contracts("contract.json")),
        of_contracts("cells.csv"),
        of_contracts("verdict.json"),
        of_contracts("outputs.json"),
        of_contracts("gates.json"),
        topology=f"{RESULTS}/topology.json",
        health=f"{RESULTS}/health.json",
        decision=f"{RESULTS}/matrix_report/decision.json",
        contracts=f"{RESULTS}/contracts.json",
        config=CONFIG,
        plan=PLAN,
    output:
        page=report(
            f"{RESULTS}/matrix_report/index.html",
            caption="captions/matrix_report.rst",
            category="Decision",
            labels={"page": "Matrix report"},
        ),
        summary=f"{RESULTS}/matrix_report/summary.json",
        cells=report(
            f"{RESULTS}/matrix_report/cells.csv",
            caption="captions/cells.rst",
            category="Numbers",
            labels={"table": "Cells"},
        ),
        evidence=f"{RESULTS}/matrix_report/evidence.md",
        figures=[
            report(
                f"{RESULTS}/matrix_report/figures/{name}.svg",
                caption=f"captions/{name}.rst",
                category="Figures",
                labels={"figure": name},
            )
            for name in FIGURES
        ],
        slides_and_papers=[
            f"{RESULTS}/matrix_report/figures/{name}.{suffix}"
            for name in FIGURES
            for suffix in SUFFIXES
            if suffix != "svg"
        ],
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        results=lambda wildcards, output: Path(output.page).parent.parent,
        folder=lambda wildcards, output: Path(output.page).parent,
        sizes=SIZES,
        title=SETTINGS.report.title,
        limits=parameters.verdict_limits(SETTINGS),
    message:
        "Writing the report"
    shell:
        "python scripts/rules/build_report.py --config {input.config:q} --plan {input.plan:q} --results {params.results:q}"
        " --out {params.folder:q} > {log:q} 2>&1"
