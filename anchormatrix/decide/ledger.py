"""The ledger of decisions: what each rested on, so that a later run can tell whether it must be verified again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.decision import Basis
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import line_text, parse_record


def read_bases(path: Path) -> dict[int, list[Basis]]:
    """The ledger's lines by size, oldest first; a line torn by a killed run, or of another form, is left out."""
    found: dict[int, list[Basis]] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # text may hold other line ends
        try:
            basis = parse_record(line, Basis, where=str(path))
            for name in (*basis.possible, *(form.form for form in basis.forms)):
                parse_form(name)
        except (InputError, ConfigError):
            continue
        found.setdefault(basis.size, []).append(basis)
    return found


def append_bases(path: Path, lines: Sequence[Basis], known: Mapping[int, Sequence[Basis]]) -> None:
    """Append the lines that differ from the newest known one of their size; nothing is ever rewritten."""
    fresh = [line for line in lines if not known.get(line.size) or known[line.size][-1] != line]
    if not fresh:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as stream:
        stream.seek(0, os.SEEK_END)
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.write(b"\n")  # after a torn line
        stream.writelines(line_text(line).encode() for line in fresh)
        stream.flush()
        os.fsync(stream.fileno())
