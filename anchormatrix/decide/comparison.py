"""The comparison of two cells: one is faster only when they differ by more than the noise floor of the pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anchormatrix.records.cells import Cell

Floor = Callable[[Cell, Cell], float]
"""The noise floor of two cells, in percent."""


def order_of(cells: Mapping[str, Cell], floor: Floor) -> tuple[tuple[str, ...], ...]:
    """Forms fastest first; a form joins the group whose fastest member it cannot be told from."""
    groups: list[list[Cell]] = []
    for cell in sorted(cells.values(), key=lambda cell: cell.step_s):
        if groups and not sign_of(groups[-1][0], cell, floor):
            groups[-1].append(cell)
        else:
            groups.append([cell])
    return tuple(tuple(cell.form for cell in group) for group in groups)


def apart_pct(a: Cell, b: Cell) -> float:
    """Difference of two cells in percent of the faster one."""
    return abs(a.step_s - b.step_s) / min(a.step_s, b.step_s) * 100


def sign_of(a: Cell, b: Cell, floor: Floor) -> int:
    """−1 when ``a`` is faster, 1 when slower, 0 when the difference lies within the noise floor."""
    if apart_pct(a, b) <= floor(a, b):
        return 0
    return -1 if a.step_s < b.step_s else 1
