"""Making an engine's environment: a CPU build first, nothing twice, one line when it cannot be made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from anchormatrix.engines.environments import Recipe, make_environment, torch_version
from anchormatrix.errors import EngineError, InputError

ROOT = Path(__file__).resolve().parents[2]


class FakeRun:
    """Answers commands by what they contain, and makes the interpreter that ``-m venv`` would make."""

    def __init__(self, **failing: str) -> None:
        self.failing = failing
        self.asked: list[str] = []
        self.plan = ["torch", "nvidia-cublas-cu12", "triton"]

    def __call__(self, argv: Sequence[str]) -> CompletedProcess[str]:
        line = " ".join(argv)
        self.asked.append(line)
        if "-m venv" in line:
            python = Path(argv[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        for part in self.failing.values():
            if part in line:
                return CompletedProcess(list(argv), 1, "", "noise\nERROR: not to be had\n")
        report = json.dumps({"install": [{"metadata": {"name": name}} for name in self.plan]})
        return CompletedProcess(list(argv), 0, report if "--report" in line else "2.13.0 0.42.1", "")

    def installed(self) -> list[str]:
        return [line.split("install ", 1)[1] for line in self.asked if " install " in line and "--dry-run" not in line]


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text("# pins\ntorch==2.13.0\ndiffusers==0.42.1\n")
    return path


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)


def make(tmp_path: Path, pins: Path, run: FakeRun, build: str = "auto") -> bool:
    return make_environment(tmp_path / "env", Recipe(pins, "import torch"), build=build, run=run, say=lambda _: None)


def test_a_cpu_build_is_taken_by_its_own_version(tmp_path: Path, pins: Path) -> None:
    run = FakeRun()
    assert make(tmp_path, pins, run)
    assert run.installed() == ["torch==2.13.0+cpu", f"-r {pins}"]


def test_a_complete_environment_is_left_alone_until_the_pins_change(tmp_path: Path, pins: Path) -> None:
    make(tmp_path, pins, FakeRun())
    again = FakeRun()
    assert not make(tmp_path, pins, again)
    assert again.asked == []
    pins.write_text("torch==2.14.0\n")
    assert make(tmp_path, pins, again)


def test_the_plain_version_is_taken_where_it_brings_no_cuda(tmp_path: Path, pins: Path) -> None:
    run = FakeRun(cpu="torch==2.13.0+cpu")
    run.plan = ["torch", "sympy"]
    make(tmp_path, pins, run)
    assert run.installed() == ["torch==2.13.0+cpu", "torch==2.13.0", f"-r {pins}"]


def test_a_cuda_build_is_not_pulled_when_uv_has_a_cpu_build(tmp_path: Path, pins: Path) -> None:
    run = FakeRun(cpu="torch==2.13.0+cpu")
    make(tmp_path, pins, run)
    assert not any(line.endswith("install torch==2.13.0") for line in run.asked)
    assert any("uv pip install" in line and "--torch-backend cpu" in line for line in run.asked)


def test_without_any_cpu_build_it_stops_and_says_how_to_go_on(tmp_path: Path, pins: Path) -> None:
    with pytest.raises(EngineError, match="--build any"):
        make(tmp_path, pins, FakeRun(cpu="torch==2.13.0+cpu", uv="--torch-backend"))
    assert not (tmp_path / "env" / "pins.made").exists()


def test_any_build_is_taken_when_asked_for(tmp_path: Path, pins: Path) -> None:
    run = FakeRun()
    make(tmp_path, pins, run, build="any")
    assert run.installed() == [f"-r {pins}"]


def test_a_failed_installation_shows_the_installer_s_error_line(tmp_path: Path, pins: Path) -> None:
    with pytest.raises(EngineError, match="ERROR: not to be had"):
        make(tmp_path, pins, FakeRun(pins="-r "))


def test_complete_pins_are_installed_as_they_stand_and_own_projects_after_them(tmp_path: Path, pins: Path) -> None:
    project = tmp_path / "plug-in"
    project.mkdir()
    source = project / "plug_in.py"
    source.write_text("value = 1\n")
    recipe = Recipe(pins, "import torch", complete=True, projects=(project,))
    run = FakeRun()
    assert make_environment(tmp_path / "env", recipe, build="cpu", run=run, say=lambda _: None)
    assert run.installed()[1:] == [f"--no-deps -r {pins}", f"--no-deps --force-reinstall {project}"]
    assert not make_environment(tmp_path / "env", recipe, build="cpu", run=FakeRun(), say=lambda _: None)
    source.write_text("value = 2\n")
    assert make_environment(tmp_path / "env", recipe, build="cpu", run=FakeRun(), say=lambda _: None)


def test_pins_without_torch_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pins.txt"
    path.write_text("diffusers==0.42.1\n")
    with pytest.raises(InputError, match="torch is not pinned"):
        torch_version(path)


def test_both_environment_files_hold_the_same_pins() -> None:
    lines = (ROOT / "envs" / "dummy-run.txt").read_text().splitlines()
    conda = yaml.safe_load((ROOT / "envs" / "dummy-run.yaml").read_text())
    assert conda["dependencies"][-1]["pip"] == [line for line in lines if not line.startswith("#")]
    assert all("==" in line for line in lines if not line.startswith("#"))
