# Sets everything up in .venv and calls the same Snakemake and pytest commands a person would type.
PYTHON ?= $(firstword $(foreach name,python3.12 python3.11 python3,$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: matrix_report test lint pytest schema dummy-run-env sglang-env vllm-omni-env test-real lock

matrix_report: $(READY)
	$(BIN)/snakemake --cores 1 matrix_report

test: lint pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

pytest: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q

# What editors check a configuration against, generated from the record.
schema: $(READY)
	$(BIN)/python -m anchormatrix.config.schema

# The dummy run's own environment: torch and diffusers, never in .venv.
dummy-run-env: .venv-dummy-run/.ready

.venv-dummy-run/.ready: envs/dummy-run.txt $(READY)
	$(BIN)/python scripts/make_dummy_run_env.py
	touch $@

# A real SGLang diffusion server on a CPU, and tiny models for it: 3 GB, never in .venv.
sglang-env: .venv-sglang/.ready

.venv-sglang/.ready: envs/sglang.txt $(wildcard dev/sglang_cpu/*.* dev/sglang_cpu/sglang_cpu/*.py) $(READY)
	$(BIN)/python scripts/make_sglang_env.py
	touch $@

# vLLM-Omni without its kernels, to test its arguments, requests and log lines: 4 GB, never in .venv; serves nothing.
vllm-omni-env: .venv-vllm-omni/.ready

.venv-vllm-omni/.ready: envs/vllm-omni.txt $(wildcard dev/vllm_omni_bare/*.*) $(READY)
	$(BIN)/python scripts/make_vllm_omni_env.py
	touch $@

test-real: $(READY) dummy-run-env sglang-env vllm-omni-env
	$(BIN)/python -m pytest -q -m real_engine

$(READY): envs/requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed (python3 -m venv must work)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

lock: $(READY)
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager '.[dev]'
	$(BIN)/python -m pip uninstall --quiet --yes anchormatrix
	{ head -n 1 envs/requirements.lock; $(BIN)/python -m pip freeze; } > envs/requirements.lock.new
	mv envs/requirements.lock.new envs/requirements.lock
