"""Run the whole workflow in a folder of its own, on a virtual host, exactly as a person would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_LINKED = ("anchormatrix", "config", "envs", "profiles", "rules", "scripts", "virtualhost")
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Project:
    """A working folder with the project's code linked in and results of its own."""

    folder: Path

    def snakemake(self, *args: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Run Snakemake with the project's own profile; returns what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", "1", *args],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def planned(self, *args: str) -> dict[str, int]:
        """What a dry run announces: rule -> number of jobs."""
        text = self.snakemake("-n", *args)
        if "Nothing to be done" in text:
            return {}
        table = text[text.index("Job stats:") :].split("\n\n")[0]
        return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}

    def read(self, path: str) -> dict[str, Any]:
        """Read a JSON file of the results."""
        return json.loads((self.folder / "results" / path).read_text(encoding="utf-8"))

    def text(self, path: str) -> str:
        """Read a text file of the results."""
        return (self.folder / "results" / path).read_text(encoding="utf-8")

    def configure(self, values: Mapping[str, Any], name: str = "test.yaml") -> str:
        """Write a configuration file; returns its path for ``--configfile``."""
        path = self.folder / name
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        return str(path)

    def virtual_host(self, scenario: str) -> dict[str, Any]:
        """The ``host`` section of the default configuration, with another scenario."""
        host = default_section("host")
        host["env"] = {**host["env"], "VIRTUALHOST_SCENARIO": scenario}
        return host


def make_project(folder: Path) -> Project:
    """Link the code into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / "Snakefile").symlink_to(ROOT / "Snakefile")
    return Project(folder)


def default_section(name: str) -> dict[str, Any]:
    """A section of the default configuration."""
    return yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))[name]
