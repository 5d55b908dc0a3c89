"""The ledger of decisions: what each rested on, so that a later run can tell whether it must be verified again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from anchormatrix.errors import ConfigError, InputError
from anchormatrix.records.decision import Basis
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import line_text, parse_record
from anchormatrix.store.ledger import append_lines


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
    append_lines(path, lambda: map(line_text, fresh))
