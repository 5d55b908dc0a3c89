"""Make SGLang's own environment (.venv-sglang): its diffusion server on this machine's CPU, and tiny models to serve.

The package is installed without its CUDA libraries and kernels, so nothing here measures a GPU. The workflow itself
never needs it; config/examples/cpu-sglang.yaml and the tests marked real_engine do. A complete environment is left as
it is.

Example:
  python scripts/make_sglang_env.py
  python scripts/make_sglang_env.py --directory /scratch/venv-sglang
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.config.project import ROOT
from anchormatrix.engines.environments import Recipe, make_environment, quiet_run
from anchormatrix.errors import EngineError

CHECK = (
    "import torch, sglang.version, sglang_cpu; from sglang.multimodal_gen.runtime.server_args import ServerArgs; "
    "print(torch.__version__, sglang.version.__version__, torch.distributed.is_gloo_available())"
)


def main() -> int:
    """Parse, make, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=ROOT / ".venv-sglang", help="where (default: %(default)s)")
    parser.add_argument("--pins", type=Path, default=ROOT / "envs" / "sglang.txt", help="pinned packages, all of them")
    args = parser.parse_args()
    recipe = Recipe(args.pins, CHECK, complete=True, projects=(ROOT / "dev" / "sglang_cpu",))
    models = args.directory / "models"
    made = make_environment(args.directory, recipe, build="cpu", run=quiet_run, say=print)
    if made:
        shutil.rmtree(models, ignore_errors=True)
    python = str(args.directory / "bin" / "python")
    done = quiet_run([python, "-m", "sglang_cpu.checkpoints", "--directory", str(models)])
    if done.returncode:
        raise EngineError(f"the models cannot be made: {done.stderr.strip().splitlines()[-1:]}", where=str(models))
    print(done.stdout, end="")
    print(f"{args.directory} is ready" if made else f"{args.directory} is complete already")
    return 0


if __name__ == "__main__":
    run(main)
