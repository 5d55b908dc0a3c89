"""LightX2V's source and a Python that can import its server, as tests use them, and why a test without them is skipped.

The package is on no index: its source is cloned (docs/lightx2v.md). The Python is that of SGLang's environment, which
has everything that LightX2V's server imports without kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(os.environ.get("ANCHORMATRIX_LIGHTX2V") or ROOT / ".lightx2v")
BIN = Path(os.environ.get("ANCHORMATRIX_LIGHTX2V_BIN") or ROOT / ".venv-sglang" / "bin")
ENV = {"PYTHONPATH": f"{SOURCE}{os.pathsep}{Path(__file__).parent}", "PLATFORM": "cpu"}
needs_lightx2v = pytest.mark.skipif(
    not ((SOURCE / "lightx2v").is_dir() and (BIN / "torchrun").exists()),
    reason="LightX2V's source or a Python for it is not there; docs/lightx2v.md says how they are made",
)


def in_lightx2v(program: str, given: Any) -> Any:
    """What a program prints last, as JSON, after LightX2V's server was entered without its kernels; ``given`` is JSON
    on its standard input."""
    done = subprocess.run(
        [str(BIN / "python"), "-c", f"import lightx2v_bare\n{program}"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **ENV},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def small_model(folder: Path) -> Path:
    """A folder as LightX2V looks for Qwen-Image's: the files of its parts' shapes, and no weights."""
    files: dict[str, dict[str, Any]] = {
        "transformer/config.json": {"in_channels": 64, "num_attention_heads": 4, "axes_dims_rope": [4, 6, 6]},
        "vae/config.json": {"temperal_downsample": [False, True, True]},
        "scheduler/scheduler_config.json": {"shift": 3.0, "num_train_timesteps": 1000},
    }
    for name, values in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    return folder
