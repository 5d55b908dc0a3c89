"""Ledgers: files of lines that only ever grow, written under a lock so that two writers never mix their lines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO


def append_lines(path: Path, more: Callable[[], Iterable[str]]) -> None:
    """Append the lines that ``more`` gives, each with its newline; it is asked under the lock and may read the file.

    What a killed writer left after the last whole line is removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _drop_torn_line(stream)
        stream.write("".join(more()).encode("utf-8"))
        stream.flush()
        os.fsync(stream.fileno())


def _drop_torn_line(stream: BinaryIO) -> None:
    stream.seek(0)
    content = stream.read()
    if content and not content.endswith(b"\n"):
        stream.truncate(content.rfind(b"\n") + 1)
