"""From numbers to a decision: the group's bandwidth, the seven gates, the conclusion."""


rule bandwidth:
    input:
        ancient(needs(FILES.before_bandwidth, "contract")),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
    output:
        f"{RESULTS}/bandwidth/{{contract}}.json",
    log:
        f"{RESULTS}/logs/bandwidth-{{contract}}.log",
    priority: in_order_of_sizes(1500)
    conda:
        "../envs/anchormatrix.yaml"
    resources:
        host=WHOLE_HOST,
    message:
        "Size sweep of the collectives of {wildcards.contract}"
    shell:
        "python scripts/rules/measure_bandwidth.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --out {output:q} > {log:q} 2>&1"


rule gates:
    input:
        needs(FILES.bandwidths, "contract"),
        needs(FILES.attributions, "contract"),
        needs(FILES.sessions, "contract"),
        f"{RESULTS}/{{contract}}/cells.csv",
        f"{RESULTS}/{{contract}}/verdict.json",
        f"{RESULTS}/{{contract}}/outputs.json",
        f"{RESULTS}/{{contract}}/smoke.json",
        needs(FILES.of_smaller, "contract"),
        smaller=ancient(needs(FILES.smaller_contracts, "contract")),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
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
        "python scripts/rules/evaluate_gates.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --smaller {input.smaller:q} --out {output:q} > {log:q} 2>&1"


rule decision:
    input:
        needs(FILES.sessions),
        needs(FILES.requests),
        needs(FILES.attributions),
        needs(FILES.bandwidths),
        of_contracts("smoke.json"),
        of_contracts("cells.csv"),
        of_contracts("verdict.json"),
        of_contracts("outputs.json"),
        of_contracts("gates.json"),
        contracts=ancient(of_contracts("contract.json")),
        config=CONFIG,
        plan=PLAN,
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
        "python scripts/rules/decide.py --config {input.config:q} --plan {input.plan:q} --results {params.results:q}"
        " --contracts {input.contracts:q} --out {output:q} > {log:q} 2>&1"
