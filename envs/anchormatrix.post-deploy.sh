#!/usr/bin/env bash
# Installs the library into the environment that Snakemake has just made; called in the project's folder.
set -euo pipefail
python -m pip install --quiet --no-deps --no-build-isolation --editable .
