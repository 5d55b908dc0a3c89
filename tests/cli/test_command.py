"""What a command prints can be shown on a terminal, whatever a server or a vendor's tool has said."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from anchormatrix.cli.command import run
from anchormatrix.cli.measuring import say
from anchormatrix.errors import EngineError

HOSTILE = "a\x1b[2Jb\x07c\x9bd\x7fe\u202ef\u2066g\ud800h\ti\rj\nk é 形"


def printed(monkeypatch: pytest.MonkeyPatch, name: str, main) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit):
        run(main)
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_controls_are_shown_escaped_and_lines_stay_lines(monkeypatch):
    expected = "a\\x1b[2Jb\\x07c\\u009bd\\u007fe\\u202ef\\u2066g\\ud800h\ti\\x0dj\nk é 形\n"
    assert printed(monkeypatch, "stderr", lambda: say(HOSTILE)) == expected
    assert printed(monkeypatch, "stdout", lambda: print(HOSTILE)) == expected


def test_what_is_json_stays_json(monkeypatch):
    text = json.dumps({"said": HOSTILE.replace("\ud800", "")}, ensure_ascii=False)
    assert json.loads(printed(monkeypatch, "stdout", lambda: print(text)))["said"] == HOSTILE.replace("\ud800", "")


def test_an_error_is_one_line_that_can_be_shown(monkeypatch):
    def fail() -> int:
        raise EngineError(f"died: {HOSTILE}", where="tp1\x1b]0;x\x07", todo="see\u2028the log")

    text = printed(monkeypatch, "stderr", fail)
    assert text.endswith(
        ": tp1\\x1b]0;x\\x07: died: a\\x1b[2Jb\\x07c\\x9bd\\x7fe\\u202ef\\u2066g\\ud800h i j k é 形; see the log\n"
    )
    assert text.startswith(Path(sys.argv[0]).name)
    assert text.count("\n") == 1
