"""The capture of a session is the one beside it, whatever path its file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.attribution.of_session import SESSION_SHAPE, with_own_capture
from anchormatrix.errors import InputError
from anchormatrix.store.shapes import check_shape


def session(directory: str | None) -> dict[str, object]:
    return {
        "contract": "c", "form": "tp1-usp4", "window": 1, "status": "measured",
        "capture": {"status": "captured", "directory": directory},
    }  # fmt: skip


@pytest.mark.parametrize("directory", ["/moved/since/results/c/tp1-usp4/capture", "/etc/capture", "../../../capture"])
def test_the_folder_is_the_one_beside_the_session(directory):
    path = Path("/here/results/c/tp1-usp4/w1/session.json")
    found = with_own_capture(session(directory), path)
    assert found["capture"] == {"status": "captured", "directory": "/here/results/c/tp1-usp4/capture"}


@pytest.mark.parametrize("directory", ["/", "..", "/a/.."])
def test_what_is_no_folder_of_a_form_is_refused(directory):
    with pytest.raises(InputError, match=r"session\.json: capture\.directory is"):
        with_own_capture(session(directory), Path("/r/c/f/w1/session.json"))


def test_without_a_capture_there_is_none():
    path = Path("/r/c/f/w1/session.json")
    assert with_own_capture({"capture": None}, path) == {"capture": None}
    assert with_own_capture(session(None), path) == session(None)
    check_shape(session(None), SESSION_SHAPE, "session.json")
