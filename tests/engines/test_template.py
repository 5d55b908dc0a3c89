"""The template of an engine: installed as a package of its own, found by its name, and measured end to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from workflow_runs import ROOT, make_project

from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.engines.find import open_engine
from anchormatrix.errors import ConfigError

TEMPLATE = ROOT / "dev" / "engine_template"


def installed(folder: Path) -> Path:
    """The template as ``pip`` installs it, in a folder of its own."""
    source = folder / "source"
    subprocess.run(["cp", "-r", str(TEMPLATE), str(source)], check=True)  # a build leaves files beside its sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(folder / "site"), str(source)], check=True)
    return folder / "site"


def test_an_engine_that_is_not_installed_is_refused_with_those_that_are():
    settings = load_settings(DEFAULT_FILE)
    mistyped = replace(settings, engine=replace(settings.engine, kind="vllm-omin"))
    with pytest.raises(ConfigError, match=r"no engine is called 'vllm-omin'; expected dummy-run, .*vllm-omni"):
        open_engine(mistyped)


@pytest.mark.workflow
def test_the_template_is_measured_end_to_end_without_a_change_to_the_workflow(tmp_path: Path):
    site = installed(tmp_path)
    project = make_project(tmp_path / "project")
    config = project.configure(
        {
            "host": project.virtual_host("virtualhost/scenarios/healthy.yaml"),
            "engine": {
                "kind": "template",
                "command": [sys.executable, "-m", "engine_template.server"],
                "model": "asleep",
                "version": "0.1",
                "ready_timeout_s": 20,
                "request_timeout_s": 20,
                "stop_grace_s": 5,
            },
            "workload": {"endpoint": "image", "prompt": "a lighthouse", "width": 64, "height": 64},
            "model": {
                "layers": 2,
                "heads": 4,
                "head_dim": 8,
                "sequence_tokens": 64,
                "guidance_branches": 1,
                "weights_gb": 0.01,
                "activation_gb": 0.01,
            },
            "matrix": {
                "sizes": [2],
                "tiers": {"few": 2, "anchor": 4},
                "forms": {2: ["tp1-usp2", "tp2-usp1", "tp1-usp2+mask2"]},
                "warmups": {"min": 2, "max": 4, "steady_pct": 20},
                "design": "full",
            },
            "verdict": {"dispersion_pct": 20, "noise_floor_pct": 1},
            "selection": {"offload_order": [], "bandwidth": {"enabled": False}},
        }
    )
    project.snakemake("matrix_report", "--configfile", config, env={"PYTHONPATH": str(site)})
    (verdict,) = project.read("matrix_report/summary.json")["verdicts"]
    assert verdict["winner"] == "tp1-usp2"
    assert "the template's server has no mask2" in project.text("matrix_report/decision.json")
