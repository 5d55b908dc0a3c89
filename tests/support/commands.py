"""Commands of scripts/ run inside the test's own process: what they print and their exit code, without an interpreter's
start and its imports each time. How a command behaves as a process is tests/house/test_cli.py's question."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(script: str, *words: object) -> CompletedProcess[str]:
    """Run ``script`` (a path below the project's folder) there, with these words as its arguments."""
    argv, out, err = [script, *map(str, words)], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    return CompletedProcess(argv, int(ended.value.code or 0), out.getvalue(), err.getvalue())
