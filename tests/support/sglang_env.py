"""SGLang's own environment (make sglang-env) as tests use it: its Python, and why a test without it is skipped."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-sglang"
PYTHON = FOLDER / "bin" / "python"
Z_IMAGE = FOLDER / "models" / "Z-Image-Turbo"
WAN = FOLDER / "models" / "Wan2.1-T2V-1.3B-Diffusers"
needs_sglang = pytest.mark.skipif(
    not PYTHON.exists(), reason="SGLang's environment is not there; make sglang-env makes it"
)


def in_sglang(program: str, given: Any, **env: str) -> Any:
    """What a program prints last, as JSON, run by SGLang's Python with ``given`` as JSON on its standard input."""
    done = subprocess.run(
        [str(PYTHON), "-c", program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "SGLANG_DIFFUSION_PLATFORM_OVERRIDE": "cpu", "HF_HUB_OFFLINE": "1", **env},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
