"""The live host: its links, its cards' health, and the contracts that follow from them."""


rule topology:
    input:
        config=CONFIG,
    output:
        f"{RESULTS}/topology.json",
    log:
        f"{RESULTS}/logs/topology.log",
    priority: BEFORE_MEASURING
    conda:
        "../envs/anchormatrix.yaml"
    params:
        links=parameters.links(RUN.live),
    message:
        "Reading the links between the cards"
    shell:
        "python scripts/rules/probe_topology.py --config {input.config:q} --out {output:q} > {log:q} 2>&1"


rule health:
    input:
        config=CONFIG,
    output:
        f"{RESULTS}/health.json",
    log:
        f"{RESULTS}/logs/health.log",
    priority: BEFORE_MEASURING
    conda:
        "../envs/anchormatrix.yaml"
    params:
        state=parameters.health(RUN.live),
    message:
        "Reading the cards' health, their tenants and the software versions"
    shell:
        "python scripts/rules/probe_health.py --config {input.config:q} --out {output:q} > {log:q} 2>&1"


rule contract:
    input:
        topology=f"{RESULTS}/topology.json",
        health=f"{RESULTS}/health.json",
        config=CONFIG,
    output:
        f"{RESULTS}/contracts.json",
    log:
        f"{RESULTS}/logs/contract.log",
    priority: BEFORE_MEASURING
    conda:
        "../envs/anchormatrix.yaml"
    params:
        contracts=RUN.contract_ids,
        ledger=LEDGER,
    message:
        "Choosing card groups and writing their contracts"
    shell:
        "python scripts/rules/resolve_contract.py --config {input.config:q} --topology {input.topology:q}"
        " --health {input.health:q} --ledger {params.ledger:q} --expect {params.contracts:q} --out {output:q} > {log:q} 2>&1"


# The list of contracts changes whenever any card does; a contract itself never does. So a contract's own file is made
# once, and what is measured below it is not measured again because another size got another group. Once made, it does
# not depend on the list at all: behind a job that runs, Snakemake looks for no reasons of a job's own, so that a card's
# changed health, or a cell asked for again, would go unnoticed whenever the list is made anew.
rule contract_record:
    input:
        needs(FILES.before_contract, "contract"),
    output:
        f"{RESULTS}/{{contract}}/contract.json",
    log:
        f"{RESULTS}/logs/contract-{{contract}}.log",
    priority: BEFORE_MEASURING
    conda:
        "../envs/anchormatrix.yaml"
    params:
        contracts=f"{RESULTS}/contracts.json",
        ledger=LEDGER,
    message:
        "Recording contract {wildcards.contract}"
    shell:
        "python scripts/rules/record_contract.py --contracts {params.contracts:q} --id {wildcards.contract:q}"
        " --ledger {params.ledger:q} --out {output:q} > {log:q} 2>&1"
