"""Plain text tables that a person can read in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return rows as an aligned table: numbers to the right with four significant decimals, ``–`` for what is missing.

    Columns are those of the rows unless given. Without rows the text says so.
    """
    listed = list(rows)
    if not listed:
        return "(none)"
    names = list(columns or dict.fromkeys(name for row in listed for name in row))
    cells = [[_cell(row.get(name)) for name in names] for row in listed]
    numeric = [all(isinstance(row.get(name), int | float) or row.get(name) is None for row in listed) for name in names]
    widths = [max(len(name), *(len(line[at]) for line in cells)) for at, name in enumerate(names)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in [names, *cells]
    )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1000 else f"{value:.1f}"
    return " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
