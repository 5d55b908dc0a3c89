"""The configuration examples: every one the README names is there, complete, and knows nothing of the virtual host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anchormatrix.config.merge import load_settings, merged
from anchormatrix.devices import probe as live
from anchormatrix.errors import HostError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "config" / "examples").glob("*.yaml"))


def test_the_readme_names_the_examples_that_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"[\w-]+(?:-local|-ssh|-run|-sglang|-lightx2v)\.yaml", readme)) == {
        path.name for path in EXAMPLES
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_holds_nothing_of_the_virtual_host(path):
    settings = load_settings(path)
    assert "virtual" not in f"{merged([path])['host']}{merged([path])['device']}{merged([path])['engine']}"
    assert settings.device.collective_test == ()


def test_a_container_is_handed_the_mark_and_every_variable_of_the_server():
    settings = load_settings(ROOT / "config" / "examples" / "ascend-ssh.yaml")
    assert settings.engine.command[:5] == ("docker", "exec", "--env=ANCHORMATRIX_RUN", "{env}", "box")
    assert "--env=ASCEND_RT_VISIBLE_DEVICES" in settings.engine.python


@pytest.mark.parametrize(("name", "tool"), [("ascend-local", "npu-smi"), ("nvidia-local", "nvidia-smi")])
def test_without_the_hardware_one_line_says_what_is_missing(name, tool, tmp_path):
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, "scripts/rules/probe_topology.py", "--config", f"config/examples/{name}.yaml"],
        cwd=ROOT,
        env={"PATH": str(tools), "HOME": str(tmp_path), "LANG": os.environ.get("LANG", "C.UTF-8")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        pytest.skip(f"this machine has {tool}")
    assert done.returncode == 2
    assert f"`{tool}` was not found" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_dummy_run_environment_names_the_command_that_makes_it():
    class Bare:
        def run(self, argv, **_):
            raise HostError(f"`{argv[0]}` was not found", where="here")

    settings = load_settings(ROOT / "config" / "examples" / "cpu-dummy-run.yaml")
    with pytest.raises(HostError, match=r"here: .*was not found; make its environment with `make dummy-run-env`"):
        live.read_version(Bare(), settings.engine.version, settings, "engine.version")
