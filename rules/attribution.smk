"""Where the step's time goes: the analyses of the capture that window 1 of every form made."""


rule attribute:
    input:
        session=f"{RESULTS}/{{contract}}/{{form}}/w1/session.json",
        requests=f"{RESULTS}/{{contract}}/{{form}}/w1/requests.csv",
        config=CONFIG,
    output:
        f"{RESULTS}/{{contract}}/{{form}}/attribution.json",
    log:
        f"{RESULTS}/logs/attribution-{{contract}}-{{form}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/attribution-{{contract}}-{{form}}.tsv"
    conda:
        "../envs/anchormatrix.yaml"
    params:
        tolerances=parameters.attribution_tolerances(SETTINGS),
    message:
        "Attributing the step of {wildcards.form} in {wildcards.contract}"
    shell:
        "python scripts/rules/attribute_session.py --config {input.config:q} --session {input.session:q}"
        " --requests {input.requests:q} --out {output:q} > {log:q} 2>&1"


rule attribute_anchor:
    input:
        session=f"{RESULTS}/{{contract}}/{{form}}/w2/session.json",
        requests=f"{RESULTS}/{{contract}}/{{form}}/w2/requests.csv",
        config=CONFIG,
    output:
        f"{RESULTS}/{{contract}}/{{form}}/attribution-anchor.json",
    log:
        f"{RESULTS}/logs/attribution-anchor-{{contract}}-{{form}}.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        tolerances=parameters.attribution_tolerances(SETTINGS),
    message:
        "Attributing a late step of {wildcards.form} in {wildcards.contract}"
    shell:
        "python scripts/rules/attribute_session.py --config {input.config:q} --session {input.session:q}"
        " --requests {input.requests:q} --out {output:q} > {log:q} 2>&1"
