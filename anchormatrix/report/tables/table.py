"""A table of text, as the page and the Markdown show it."""

from __future__ import annotations

from dataclasses import dataclass

_SHORT = 17


@dataclass(frozen=True)
class Table:
    """A table of text. ``numeric`` names right-aligned columns; rows in ``bad`` are marked; ``empty`` replaces none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    bad: frozenset[int] = frozenset()
    empty: str = ""

    @property
    def unbroken(self) -> frozenset[str]:
        """Columns of short values, which are not broken over lines."""
        columns = zip(self.columns, zip(*self.rows, strict=True), strict=True) if self.rows else ()
        return frozenset(name for name, values in columns if max(map(len, values)) <= _SHORT)
