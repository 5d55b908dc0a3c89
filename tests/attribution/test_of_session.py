"""The capture of a session is the one beside it, whatever path its file holds."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
import whole_requests as whole

from anchormatrix.attribution.of_session import attribute_session, with_own_capture
from anchormatrix.config.merge import DEFAULT_FILE, load_settings
from anchormatrix.errors import InputError
from anchormatrix.records.attribution import AttributionStatus
from anchormatrix.records.requests import RequestRow, RequestStatus, Role
from anchormatrix.records.session import Capture, CaptureStatus, Session, SessionStatus


def session(directory: str | None) -> Session:
    return Session(
        contract="c",
        form="tp1-usp4",
        window=1,
        status=SessionStatus.MEASURED,
        reason="",
        evidence=(),
        command=(),
        env={},
        capture=Capture(status=CaptureStatus.CAPTURED, directory=directory),
        tries=(),
        generation=0,
        night="",
    )


@pytest.mark.parametrize("directory", ["/moved/since/results/c/tp1-usp4/capture", "/etc/capture", "../../../capture"])
def test_the_folder_is_the_one_beside_the_session(directory: str) -> None:
    path = Path("/here/results/c/tp1-usp4/w1/session.json")
    assert with_own_capture(session(directory), path) == session("/here/results/c/tp1-usp4/capture")


@pytest.mark.parametrize("directory", ["/", "..", "/a/.."])
def test_what_is_no_folder_of_a_form_is_refused(directory: str) -> None:
    with pytest.raises(InputError, match=r"session\.json: capture\.directory is"):
        with_own_capture(session(directory), Path("/r/c/f/w1/session.json"))


def test_without_a_capture_there_is_none() -> None:
    assert with_own_capture(session(None), Path("/r/c/f/w1/session.json")) == session(None)


DRAWN = whole.Request(steps=4, branches=1, layers=12, encoder_layers=30, tiles=6)


def attributed(tmp_path: Path, diffuse_s: float | None, iterations: int = 4):
    """The attribution of a session whose capture is a whole request."""
    whole.write(whole.made(DRAWN, random.Random(5)), tmp_path, annotation="ProfilerStep#0")
    settings = load_settings(DEFAULT_FILE)
    settings = msgspec.structs.replace(settings, model=msgspec.structs.replace(settings.model, layers=12))
    own = session(str(tmp_path))
    own = msgspec.structs.replace(own, capture=msgspec.structs.replace(own.capture, request=12))
    row = RequestRow(
        request=12,
        role=Role.CAPTURE,
        steps=iterations,
        diffuse_s=diffuse_s,
        ranks=1,
        status=RequestStatus.OK,
        latency_s=1.0,
        sent_s=0.0,
    )
    return attribute_session(own, [row], settings)


def test_a_captured_whole_request_is_cut_into_its_steps(tmp_path: Path) -> None:
    trace = whole.made(DRAWN, random.Random(5))
    begins = trace.begins()
    found = attributed(tmp_path, (begins[-1] - begins[0]) / 1e6)
    assert found.status is AttributionStatus.ANALYSED
    stages = [round(1000 * row.stage_ms) for row in found.steps.all]
    assert stages == [end - begin for begin, end in pairwise(begins)]
    assert found.steps.outside[0].kernels == sum(one.step < 0 for one in trace.kernels)


def test_a_whole_request_whose_steps_cannot_be_told_is_refused_and_never_a_step(tmp_path: Path) -> None:
    found = attributed(tmp_path, None, iterations=9)
    assert found.status is AttributionStatus.REFUSED
    assert "4 repeats were found where 9 steps × 2 branches = 18 were expected" in found.reason
