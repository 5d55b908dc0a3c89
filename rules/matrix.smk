"""The matrix: one session of the serving engine per form and window, then cells and the verdict of a contract."""

# One rule per card count: a contract that cannot be measured does not stop the next.
for size in SIZES:

    rule:
        name:
            f"window_{size}"
        input:
            needs(FILES.before_session, "contract", "form", "window"),
            contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
            config=CONFIG,
            plan=PLAN,
        output:
            # Measured anew in place: a measurement that fails leaves the result before it.
            session=update(f"{RESULTS}/{{contract}}/{{form}}/w{{window}}/session.json"),
            requests=update(f"{RESULTS}/{{contract}}/{{form}}/w{{window}}/requests.csv"),
            server=update(f"{RESULTS}/{{contract}}/{{form}}/w{{window}}/server.log"),
            picture=update(f"{RESULTS}/{{contract}}/{{form}}/w{{window}}/output.bin"),
        log:
            f"{RESULTS}/logs/window-{{contract}}-{{form}}-w{{window}}.log",
        benchmark:
            f"{RESULTS}/benchmarks/window-{{contract}}-{{form}}-w{{window}}.tsv"
        wildcard_constraints:
            contract=f"c{size}-[0-9a-f]{{10}}",
        priority: in_order_of_sizes(1000)
        conda:
            "../envs/anchormatrix.yaml"
        resources:
            host=WHOLE_HOST,
            deadline=RUN.deadline,  # no parameter: another hour makes no other result
        params:
            design=parameters.session_design(SETTINGS),
            generation=lambda wildcards: RUN.session_generation(
                wildcards.contract, wildcards.form, int(wildcards.window)
            ),
            night=lambda wildcards: RUN.contract_night(wildcards.contract),
        message:
            "Measuring {wildcards.form} in window {wildcards.window} of {wildcards.contract}:"
            " {RUN.progress:{wildcards.contract} {wildcards.form} {wildcards.window}}"
        shell:
            "python scripts/rules/measure_window.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
            " --form {wildcards.form:q} --window {wildcards.window:q} --generation {params.generation:q}"
            " --night={params.night:q} --deadline={resources.deadline:q} --out {output.session:q} > {log:q} 2>&1"


rule outputs:
    input:
        needs(FILES.outputs, "contract"),
        sessions=needs(FILES.sessions, "contract"),
        requests=needs(FILES.requests, "contract"),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
    output:
        f"{RESULTS}/{{contract}}/outputs.json",
    log:
        f"{RESULTS}/logs/outputs-{{contract}}.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        limits=parameters.output_limits(SETTINGS),
    message:
        "Do the forms of {wildcards.contract} compute the same picture?"
    shell:
        "python scripts/rules/compare_outputs.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --sessions {input.sessions:q} --out {output:q} > {log:q} 2>&1"


rule cells:
    input:
        f"{RESULTS}/{{contract}}/outputs.json",
        sessions=needs(FILES.sessions, "contract"),
        requests=needs(FILES.requests, "contract"),
        attributions=needs(FILES.attributions, "contract"),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
    output:
        f"{RESULTS}/{{contract}}/cells.csv",
    log:
        f"{RESULTS}/logs/cells-{{contract}}.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        forms=lambda wildcards: RUN.forms_of(wildcards.contract),
        limits=parameters.verdict_limits(SETTINGS),
        figures=parameters.model_figures(SETTINGS),
    message:
        "Medians and dispersion of {wildcards.contract}"
    shell:
        "python scripts/rules/build_cells.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --sessions {input.sessions:q} --out {output:q} > {log:q} 2>&1"


rule contract_verdict:
    input:
        f"{RESULTS}/{{contract}}/outputs.json",
        cells=f"{RESULTS}/{{contract}}/cells.csv",
        sessions=needs(FILES.sessions, "contract"),
        requests=needs(FILES.requests, "contract"),
        attributions=needs(FILES.attributions, "contract"),
        contract=ancient(f"{RESULTS}/{{contract}}/contract.json"),
        config=CONFIG,
        plan=PLAN,
    output:
        f"{RESULTS}/{{contract}}/verdict.json",
    log:
        f"{RESULTS}/logs/verdict-{{contract}}.log",
    conda:
        "../envs/anchormatrix.yaml"
    params:
        limits=parameters.verdict_limits(SETTINGS),
        figures=parameters.model_figures(SETTINGS),
    message:
        "May the few-step ranking of {wildcards.contract} be used?"
    shell:
        "python scripts/rules/judge_verdict.py --config {input.config:q} --plan {input.plan:q} --contract {input.contract:q}"
        " --cells {input.cells:q} --sessions {input.sessions:q} --out {output:q} > {log:q} 2>&1"
