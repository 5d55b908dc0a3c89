"""The nightly sweep: everything measured once per night under the same contracts, and the page that compares nights."""


rule nightly_report:
    input:
        sessions=needs(FILES.sessions_of_the_night),
        config=CONFIG,
    output:
        page=report(
            f"{RESULTS}/nightly/index.html",
            caption="captions/nightly.rst",
            category="Nights",
            labels={"page": "Nightly report"},
        ),
        summary=f"{RESULTS}/nightly/summary.json",
    log:
        f"{RESULTS}/logs/nightly.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        night=SETTINGS.night or None,
        folder=lambda wildcards, output: Path(output.page).parent,
    message:
        "Comparing night {params.night} with those before it"
    shell:
        "python scripts/rules/build_nightly.py --config {input.config:q} --night {params.night:q} --sessions {input.sessions:q}"
        " --out {params.folder:q} > {log:q} 2>&1"


rule nightly:
    input:
        rules.matrix_report.input,
        rules.nightly_report.output,
