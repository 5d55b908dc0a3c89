"""A working folder with the project's code linked in: runs of the workflow in it, and what they leave running."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from anchormatrix.config.merge import merged
from anchormatrix.hosts import locks
from anchormatrix.hosts.processes import visible
from virtualhost.host.state import HostState, Job

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0
_LINKED = ("Snakefile", "anchormatrix", "config", "envs", "profiles", "rules", "scripts", "virtualhost")
_LINGER_S = 30.0
_HOST = "host"  # what lies on the host and not in results/: its state, leases and scratch files


@dataclass(frozen=True)
class Run:
    """One call of Snakemake in a session of its own; what it prints goes to ``output``."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        """The process id of Snakemake, which is also that of its group."""
        return self.process.pid

    def wait(self, limit_s: float = LIMIT_S) -> int | None:
        """The exit code; ``None`` when it had not ended after ``limit_s`` and was killed with its group."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
            return None

    def text(self) -> str:
        """What it printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True)
class Project:
    """A folder with results of its own and a host of its own."""

    folder: Path

    @property
    def results(self) -> Path:
        """The results folder."""
        return self.folder / "results"

    @property
    def host(self) -> Path:
        """State, leases and scratch files of the virtual host."""
        return self.folder / _HOST

    def start(self, *args: str, cores: int = 1, env: Mapping[str, str] | None = None) -> Run:
        """Start Snakemake with this project's configuration."""
        words = ("-m", "snakemake", "--cores", str(cores), *args, "--configfile", "fault.yaml")
        return self.command(*words, env=env)

    def command(self, *words: str, env: Mapping[str, str] | None = None) -> Run:
        """Start this Python with arguments in the project's folder."""
        number = len(list(self.folder.glob("run-*.txt"))) + 1
        output = self.folder / f"run-{number}.txt"
        command = [sys.executable, *words]
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        return Run(process, output)

    def configure(self, values: Mapping[str, Any]) -> None:
        """Write the configuration: the small matrix, with ``values`` over it section by section."""
        text = yaml.safe_dump(_over(_small_matrix(), values), sort_keys=False)
        (self.folder / "fault.yaml").write_text(text, encoding="utf-8")

    def adjust(self, values: Mapping[str, Any]) -> None:
        """Put ``values`` over the configuration as it is."""
        file = self.folder / "fault.yaml"
        stored = yaml.safe_load(file.read_text(encoding="utf-8"))
        file.write_text(yaml.safe_dump(_over(stored, values), sort_keys=False), encoding="utf-8")

    def set_host(self, scenario: str = "healthy", values: Mapping[str, Any] | None = None) -> None:
        """Make the host one of the scenarios, with sessions that can be repeated exactly and ``values`` over it."""
        quiet = {
            "extends": str(ROOT / "virtualhost" / "scenarios" / f"{scenario}.yaml"),
            "name": "fault",
            "timing": {"windows_named": True},
        }
        text = yaml.safe_dump(_over(quiet, values or {}), sort_keys=False)
        temporary = self.folder / ".scenario.yaml"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.folder / "scenario.yaml")

    def summary(self) -> dict[str, Any] | None:
        """The report's numbers, or ``None`` without a report."""
        try:
            return json.loads((self.results / "matrix_report" / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def sessions(self) -> dict[str, bytes]:
        """The content of every ``session.json`` of a session that was measured, by its path below results/."""
        found = {}
        for path in self.results.glob("c*-*/*/w*/session.json"):
            with contextlib.suppress(OSError, ValueError):
                content = path.read_bytes()
                if json.loads(content)["status"] == "measured":
                    found[str(path.relative_to(self.results))] = content
        return found

    def jobs(self) -> tuple[Job, ...]:
        """The servers that run on the host."""
        return HostState(self.host / "state").jobs() if (self.host / "state").is_dir() else ()

    def processes(self) -> dict[int, str]:
        """Every process of this project, by id: its folder is in the command, the environment or the working folder."""
        ours = re.compile(re.escape(os.fsencode(self.folder)) + rb"(?![\w.-])")
        found = {}
        for pid in visible():
            with contextlib.suppress(OSError):
                base = Path(f"/proc/{pid}")
                command = (base / "cmdline").read_bytes()
                where = os.fsencode((base / "cwd").readlink())
                everything = b"\0".join([command, where, (base / "environ").read_bytes()])
                if pid != os.getpid() and command and ours.search(everything):
                    found[pid] = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
        return found

    def left_running(self) -> str:
        """What still runs or is held after a while, in words; empty when nothing is."""
        deadline = time.monotonic() + _LINGER_S
        while True:
            found = [f"{text[:60]} (pid {pid})" for pid, text in self.processes().items()]
            found += [f"a server of {job.form} on the host" for job in self.jobs()]
            leases = self.host / "leases"
            held = locks.holders(str(leases)) if leases.is_dir() else []
            found += [f"the lease of card {holder['card']}" for holder in held if holder["held"]]
            if not found or time.monotonic() > deadline:
                return "; ".join(found)
            time.sleep(0.2)


def make_project(folder: Path) -> Project:
    """Link the code into an empty folder; nothing is configured yet."""
    folder.mkdir(parents=True)
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    project = Project(folder.resolve())
    project.set_host()
    project.configure({})
    return project


def _small_matrix() -> dict[str, Any]:
    """One pair of forms on four cards, no captures, and short patience: one run takes seconds.

    Paths are relative to the working folder, so that a copy of a project goes on where the first one ended.
    """
    defaults = merged([])
    host = {
        **defaults["host"],
        "env": {"VIRTUALHOST_SCENARIO": "scenario.yaml", "VIRTUALHOST_STATE": f"{_HOST}/state"},
        "lease_dir": f"{_HOST}/leases",
        "scratch_dir": f"{_HOST}/scratch",
        "command_timeout_s": 8,
    }
    engine = {**defaults["engine"], "ready_timeout_s": 15, "request_timeout_s": 8, "stop_grace_s": 4}
    return {
        "host": host,
        "engine": engine,
        "health": {"busy_wait_s": 10},
        "matrix": {"sizes": [4], "forms": {4: ["tp1-usp4", "tp2-usp2"]}},
        "capture": {"enabled": False},
        "selection": {"bandwidth": {"enabled": False}},
    }


def _over(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in values.items():
        below = both.get(key)
        both[key] = _over(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return both
