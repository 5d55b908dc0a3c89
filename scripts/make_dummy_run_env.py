"""Make the dummy run's own environment (.venv-dummy-run): pinned torch and diffusers, a CPU build without a GPU.

The workflow itself never needs it; the engine dummy-run and the tests marked real_engine do. A complete environment is
left as it is.

Example:
  python scripts/make_dummy_run_env.py
  python scripts/make_dummy_run_env.py --build any --directory /scratch/venv-dummy-run
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.project import ROOT
from anchormatrix.engines.environments import BUILDS, Recipe, make_environment, quiet_run

CHECK = "import torch, diffusers; print(torch.__version__, diffusers.__version__, torch.distributed.is_available())"


def main() -> int:
    """Parse, make, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=ROOT / ".venv-dummy-run", help="where (default: %(default)s)")
    parser.add_argument("--pins", type=Path, default=ROOT / "envs" / "dummy-run.txt", help="pinned packages")
    parser.add_argument(
        "--build",
        choices=BUILDS,
        default="auto",
        help="build of torch: cpu, any (what the index gives), auto (any with an NVIDIA GPU, else cpu)",
    )
    args = parser.parse_args()
    made = make_environment(args.directory, Recipe(args.pins, CHECK), build=args.build, run=quiet_run, say=print)
    print(f"{args.directory} is ready" if made else f"{args.directory} is complete already")
    return 0


if __name__ == "__main__":
    run(main)
