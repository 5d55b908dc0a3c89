"""The whole matrix on a host behind a real OpenSSH server says what the same host says from inside."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from campaigns.openssh import MISSING, running_sshd
from workflow_runs import ROOT, Project, default_section, make_project

from anchormatrix.hosts import locks

pytestmark = [pytest.mark.workflow, pytest.mark.ssh, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

MATRIX = {"sizes": [2], "windows": 2, "forms": {2: ["tp1-usp2", "tp2-usp1"]}}


def captured(project: Project) -> list[str]:
    """The profiler's tables of a run, without the process id that stands in the name of each rank's folder."""
    paths = (path.relative_to(project.folder) for path in project.folder.glob("results/*/*/capture/**/*.csv*"))
    return sorted(re.sub(r"_\d+_\d{17}_ascend_pt", "_ascend_pt", path.as_posix()) for path in paths)


def configured(project: Project, folder: Path, **host: object) -> str:
    """The default virtual host, told where it lies, with its state and leases in ``folder``."""
    section = {
        **project.virtual_host(f"{ROOT}/virtualhost/scenarios/healthy.yaml"),
        "path": [f"{ROOT}/virtualhost/bin"],
        "lease_dir": f"{folder}/leases",
        "scratch_dir": f"{folder}/scratch",
        **host,
    }
    section["env"]["VIRTUALHOST_STATE"] = f"{folder}/state"
    device = {**default_section("device"), "toolkit": ["cat", f"{ROOT}/virtualhost/toolkit-version.txt"]}
    return project.configure({"host": section, "device": device, "matrix": MATRIX})


def test_the_matrix_over_ssh_has_the_summary_of_the_local_one(tmp_path: Path):
    near, far = make_project(tmp_path / "near"), make_project(tmp_path / "far")
    for folder in ("sshd", "here", "there"):
        (tmp_path / folder).mkdir()
    near.snakemake("matrix_report", "--configfile", configured(near, tmp_path / "here"))
    with running_sshd(tmp_path / "sshd") as ssh:
        reach = {
            "host": ssh.host,
            "port": ssh.port,
            "user": ssh.user,
            "key_file": ssh.key_file,
            "known_hosts": ssh.known_hosts,
            "python": sys.executable,
        }
        far.snakemake("matrix_report", "--configfile", configured(far, tmp_path / "there", kind="ssh", ssh=reach))
    assert far.read("matrix_report/summary.json") == near.read("matrix_report/summary.json")
    assert list((tmp_path / "there" / "scratch").iterdir()) == []
    assert locks.holders(str(tmp_path / "there" / "leases")) == []
    captures = captured(far)
    assert captures
    assert captures == captured(near)
