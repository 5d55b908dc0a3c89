"""Captures whose files torch_npu has only recorded: analysed on the host before they are fetched, or said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from serving_world import small_settings

from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Completed
from anchormatrix.measure.capturing import fetch_capture
from anchormatrix.records.session import Capture, CaptureStatus


class Local:
    """This machine, as far as a capture needs it."""

    def run(self, argv, *, env=None, timeout_s, check=True):
        done = subprocess.run(argv, env=env, timeout=timeout_s, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise HostError(f"exit code {done.returncode}: {done.stderr.strip()}", where=argv[0])
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr, 0.0)

    def fetch(self, path, to):
        shutil.copytree(path, to)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The folder of a rank that was recorded, beside one that was analysed."""
    folder = tmp_path / "scratch" / "diffusion_rank0" / "host_7_ascend_pt"
    (folder / "FRAMEWORK").mkdir(parents=True)
    (folder / "FRAMEWORK" / "torch.op_range").write_bytes(b"\0\1")
    done = tmp_path / "scratch" / "diffusion_rank1" / "host_8_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    done.mkdir(parents=True)
    (done / "kernel_details.csv").write_text("Name\nMatMul\n")
    return folder


def python(tmp_path: Path, body: str) -> tuple[str, ...]:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return (str(path),)


def fetched(tmp_path: Path, interpreter: tuple[str, ...]) -> Capture:
    settings = small_settings(engine={"python": interpreter})
    made = Capture(CaptureStatus.CAPTURED, 12)
    return fetch_capture(made, Local(), str(tmp_path / "scratch"), tmp_path / "form", settings)


def test_raw_folders_alone_are_analysed_by_the_engines_own_python(tmp_path, recorded):
    body = (
        'echo "$@" > "$3/asked"; mkdir "$3/ASCEND_PROFILER_OUTPUT"; printf "Name\\nMatMul\\n" > "$3/kernel_details.csv"'
    )
    capture = fetched(tmp_path, python(tmp_path, body))
    assert (capture.status, capture.reason) == ("captured", "")
    there = tmp_path / "form" / "capture" / "diffusion_rank0" / "host_7_ascend_pt"
    assert (there / "kernel_details.csv").exists()
    assert (there / "asked").read_text().endswith(f"[analyse(one) for one in sys.argv[1:]] {recorded}\n")


def test_an_analysis_that_fails_is_said_and_the_raw_data_is_fetched(tmp_path, recorded):
    capture = fetched(tmp_path, python(tmp_path, "echo no module torch_npu >&2; exit 1"))
    assert capture.status == "captured"
    assert capture.reason.startswith("the profiler's raw data could not be analysed: ")
    assert "no module torch_npu" in capture.reason


def test_without_raw_folders_nothing_is_run(tmp_path, recorded):
    shutil.rmtree(recorded.parent)
    assert fetched(tmp_path, ("/no/such/python",)).reason == ""
