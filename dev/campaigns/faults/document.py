"""The part of a document that a campaign writes: between two marks, all else is a person's."""

from __future__ import annotations

from pathlib import Path

from anchormatrix.errors import InputError
from anchormatrix.store.files import write_text


def write_section(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``.

    Raises :class:`InputError` when the document has no such marks.
    """
    document = path.read_text(encoding="utf-8") if path.exists() else ""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, opened, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not opened or not closed:
        raise InputError("has no place for the result", where=str(path), expected=f"a line {begin} and a line {end}")
    write_text(path, f"{head}{begin}\n{text.strip()}\n{end}{tail}")
