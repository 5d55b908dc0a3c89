"""Ledgers: files of lines that only ever grow, written under a lock so that two writers never mix their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from anchormatrix.errors import cannot_write
from anchormatrix.store.seals import appending, seal_lines


def append_lines(path: Path, more: Callable[[], Iterable[str]]) -> None:
    """Append the lines that ``more`` gives, each with its newline; it is asked under the lock and may read the file.

    What a killed writer left after the last whole line is removed first. Raises :class:`WriteError`.
    """
    try:
        with appending(path) as stream:
            lines = [line.encode("utf-8") for line in more()]
            seal_lines(path, (line.removesuffix(b"\n") for line in lines))
            stream.write(b"".join(lines))
    except OSError as error:
        raise cannot_write(error, path) from None
