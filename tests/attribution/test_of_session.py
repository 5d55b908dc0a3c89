"""The capture of a session is the one beside it, whatever path its file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.attribution.of_session import with_own_capture
from anchormatrix.errors import InputError
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
