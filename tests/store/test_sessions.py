"""The files of a session: read as they were written, refused when they are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measured import request_row, session_record, timed_session

from anchormatrix.errors import InputError
from anchormatrix.records.requests import Role
from anchormatrix.store.codec import plain
from anchormatrix.store.sessions import TimedSession, read_session, write_session


def test_a_session_survives_its_files(tmp_path: Path) -> None:
    rows = (request_row(1, "few", 0.9, role=Role.RAMP), request_row(2, "few", 1.0), request_row(3, "few", None))
    write_session(tmp_path / "session.json", TimedSession(session_record(), rows), "the log")
    found = read_session(tmp_path / "session.json", "c4-x")
    assert (found.session, found.requests) == (session_record(), rows)
    assert (found.values_s, found.denominators) == ({"few": (1.0,)}, {"few": {("bar", 4)}})
    assert (tmp_path / "server.log").read_text() == "the log"


def test_what_a_session_does_not_have_is_not_in_its_file(tmp_path: Path) -> None:
    write_session(tmp_path / "session.json", timed_session("tp1-usp4", 1, {}, "skipped", ramp=None))
    values = json.loads((tmp_path / "session.json").read_text())
    assert list(values) == [
        "schema", "contract", "form", "window", "status", "reason", "evidence", "command", "env", "tries", "generation",
        "night",
    ]  # fmt: skip


def test_a_session_that_was_not_measured_has_no_step_times(tmp_path: Path) -> None:
    write_session(tmp_path / "session.json", timed_session("tp1-usp4", 1, {"few": [1.0]}, "void"))
    assert read_session(tmp_path / "session.json").values_s == {}


def test_numbers_of_another_contract_are_refused(tmp_path: Path) -> None:
    write_session(tmp_path / "session.json", timed_session("tp1-usp4", 1, {}, "void", contract="c4-old"))
    with pytest.raises(InputError, match="was measured under 'c4-old'"):
        read_session(tmp_path / "session.json", "c4-new")


@pytest.mark.parametrize(("before", "after"), [(",1.0,", ",nan,"), (",1.0,", ",inf,"), (",4,bar,", ",,bar,")])
def test_a_damaged_request_table_names_its_file_and_line(tmp_path: Path, before: str, after: str) -> None:
    write_session(tmp_path / "session.json", timed_session("tp1-usp4", 1, {"few": [1.0]}))
    path = tmp_path / "requests.csv"
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(InputError, match=f"{path}:2"):
        read_session(tmp_path / "session.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "Measured"), ("status", ["measured"]), ("window", "1"), ("window", 1.5), ("window", True),
        ("window", 0), ("ramp", 5), ("ramp", {"requests": 1, "first_steady": 1, "steady": "false", "why": ""}),
    ],
)  # fmt: skip
def test_a_session_with_a_wrong_value_inside_is_refused(tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "session.json").write_text(json.dumps(plain(session_record()) | {key: value}))
    with pytest.raises(InputError, match=f"session.json: .*{key}"):
        read_session(tmp_path / "session.json")
