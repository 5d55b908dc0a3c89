"""From numbers to a decision: the group's bandwidth, the seven gates, the conclusion."""


rule bandwidth:
    input:
        before_bandwidth,
        contract=f"{RESULTS}/{{contract}}/contract.json",
        config=CONFIG,
    output:
        f"{RESULTS}/bandwidth/{{contract}}.json",
    log:
        f"{RESULTS}/logs/bandwidth-{{contract}}.log",
    priority: 1500
    conda:
        "../envs/anchormatrix.yaml"
    resources:
        host=1,
    message:
        "Size sweep of the collectives of {wildcards.contract}"
    shell:
        "python scripts/rules/measure_bandwidth.py --config {input.config} --contract {input.contract} --out {output}"
        " > {log} 2>&1"


rule gates:
    input:
        bandwidths,
        forms_attributed,
        contract=f"{RESULTS}/{{contract}}/contract.json",
        verdict=f"{RESULTS}/{{contract}}/verdict.json",
        health=ancient(f"{RESULTS}/health.json"),
        config=CONFIG,
    output:
        f"{RESULTS}/{{contract}}/gates.json",
    log:
        f"{RESULTS}/logs/gates-{{contract}}.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        figures=parameters.model_figures(SETTINGS),
    message:
        "Evaluating the seven gates of {wildcards.contract}"
    shell:
        "python scripts/rules/evaluate_gates.py --config {input.config} --contract {input.contract} --out {output}"
        " > {log} 2>&1"


rule decision:
    input:
        of_contracts(f"{RESULTS}/{{contract}}/gates.json"),
        contracts=of_contracts(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
    output:
        f"{RESULTS}/matrix_report/decision.json",
    log:
        f"{RESULTS}/logs/decision.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        sizes=SIZES,
        results=lambda wildcards, output: Path(output[0]).parent.parent,
    message:
        "Deciding"
    shell:
        "python scripts/rules/decide.py --config {input.config} --results {params.results} --contracts {input.contracts}"
        " --out {output} > {log} 2>&1"
