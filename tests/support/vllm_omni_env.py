"""vLLM-Omni's own environment (make vllm-omni-env) as tests use it: its Python, and why a test is skipped."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-vllm-omni"
PYTHON = FOLDER / "bin" / "python"
needs_vllm_omni = pytest.mark.skipif(
    not (FOLDER / "vllm-omni.made").exists(), reason="vLLM-Omni's environment is not there; make vllm-omni-env makes it"
)


def in_vllm_omni(program: str, given: Any) -> Any:
    """What a program prints last, as JSON, run by vLLM-Omni's Python with ``given`` as JSON on its standard input."""
    done = subprocess.run(
        [str(PYTHON), "-c", f"import vllm_omni_bare\n{program}"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
