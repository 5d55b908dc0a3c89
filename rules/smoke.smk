"""The four-step smoke of a card group: the only step whose outcome decides which jobs come next."""


checkpoint group_smoke:
    input:
        needs(FILES.before_smoke, "contract"),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
    output:
        update(f"{RESULTS}/{{contract}}/smoke.json"),
    log:
        f"{RESULTS}/logs/smoke-{{contract}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/smoke-{{contract}}.tsv"
    priority: in_order_of_sizes(2000)
    conda:
        "../envs/anchormatrix.yaml"
    resources:
        host=WHOLE_HOST,
        deadline=RUN.deadline,  # no parameter: another hour makes no other result
    params:
        state=lambda wildcards: RUN.state_of(wildcards.contract),
        generation=lambda wildcards: RUN.smoke_generation(wildcards.contract),
        night=lambda wildcards: RUN.smoke_night(wildcards.contract),
    message:
        "Four-step smoke of {wildcards.contract}"
    shell:
        "python scripts/rules/measure_smoke.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --state {params.state:q} --generation {params.generation:q} --night={params.night:q} --deadline={resources.deadline:q}"
        " --out {output:q} > {log:q} 2>&1"
