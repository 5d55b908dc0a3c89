"""What ``scripts/leases.py`` prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def printed(folder: Path) -> str:
    """What it says of a host whose leases lie in ``folder/leases``."""
    example = yaml.safe_load((ROOT / "config" / "examples" / "cpu-dummy-run.yaml").read_text())
    config = folder / "host.json"
    config.write_text(json.dumps({**example, "host": {"alias": "here", "lease_dir": f"{folder}/leases"}}))
    argv = [sys.executable, "scripts/leases.py", "--config", str(config)]
    return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
