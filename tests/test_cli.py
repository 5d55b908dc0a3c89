"""What every command does when it cannot even start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_an_interpreter_without_the_packages_is_told_which_one_has_them():
    done = subprocess.run(
        [sys.executable, "-S", "scripts/collective_attribution.py", "--profile-dir", "x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "has no package numpy; run .venv/bin/python scripts/collective_attribution.py" in done.stderr
    assert len(done.stderr.splitlines()) == 1
