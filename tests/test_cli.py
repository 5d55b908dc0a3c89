"""What the commands and the workflow say when they cannot even start."""

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


def test_from_another_folder_the_workflow_says_where_to_run_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "matrix_report", "-s", str(ROOT / "Snakefile"), "-d", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"run snakemake in the project's folder (cd {ROOT})" in done.stdout + done.stderr
    assert not (tmp_path / "results").exists()
