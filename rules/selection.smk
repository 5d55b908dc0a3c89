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
        "python scripts/measure_bandwidth.py --config {input.config} --contract {input.contract} --out {output}"
        " > {log} 2>&1"
