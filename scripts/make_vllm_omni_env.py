"""Make vLLM-Omni's own environment (.venv-vllm-omni): its argument parser, request models and loggers, to test against.

The packages are installed without kernels: no server can run from it. The workflow itself never needs it; the tests
marked real_engine do. A complete environment is left as it is.

Example:
  python scripts/make_vllm_omni_env.py
  python scripts/make_vllm_omni_env.py --directory /scratch/venv-vllm-omni
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.project import ROOT
from anchormatrix.engines.environments import Recipe, make_environment, quiet_run

CHECK = (
    "import importlib.metadata, vllm_omni_bare, torch; from vllm_omni.entrypoints.cli import serve; "
    "print(torch.__version__, importlib.metadata.version('vllm-omni'))"
)


def main() -> int:
    """Parse, make, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=ROOT / ".venv-vllm-omni", help="where (default: %(default)s)")
    parser.add_argument("--pins", type=Path, default=ROOT / "envs" / "vllm-omni.txt", help="pinned packages, all")
    args = parser.parse_args()
    recipe = Recipe(args.pins, CHECK, complete=True, projects=(ROOT / "dev" / "vllm_omni_bare",))
    made = make_environment(args.directory, recipe, build="cpu", run=quiet_run, say=print)
    print(f"{args.directory} is ready" if made else f"{args.directory} is complete already")
    return 0


if __name__ == "__main__":
    run(main)
