"""Speed-up between sizes, also of cells too noisy to rank: then it is said to be for orientation only."""

from __future__ import annotations

from dataclasses import dataclass

from anchormatrix.decide.theory.scaling import arm_of, gain
from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.form import Form, parse_form
from anchormatrix.records.settings.values import ANCHOR
from anchormatrix.report.model import Measured, Report, fixed_facts
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import count_of, number

NOTE = (
    "Medians of the anchor tier. The base of a form is the same arm (all degrees but the Ulysses one, and the "
    "features) at the smallest size that has it; one card is the base of every arm, because nothing is split there. "
    "Efficiency is speed-up ÷ card ratio. Another size is another card group, so the topology changes with it: this "
    "compares groups, not forms alone."
)
ORIENTATION = "unstable: orientation only"


@dataclass(frozen=True)
class Gain:
    """One form at one size. ``speedup`` is that over ``base`` (form, size); None without a base or on damaged cards."""

    measured: Measured
    form: str
    cell: Cell
    base: tuple[str, int] | None
    speedup: float | None
    efficiency: float | None
    stable: bool
    why: str


def gains(report: Report) -> tuple[Gain, ...]:
    """Every form with an anchor step, sizes ascending; empty unless two sizes have one."""
    found = [
        (measured, form, cell)
        for measured in sorted(report.measured, key=lambda one: one.contract.size)
        for form in measured.measured_forms
        if (cell := measured.cell(form, ANCHOR)) is not None
    ]
    if len({measured.contract.size for measured, _, _ in found}) < 2:
        return ()
    return tuple(_gain(report, one, found) for one in found)


_Found = tuple[Measured, str, Cell]


def _gain(report: Report, one: _Found, found: list[_Found]) -> Gain:
    measured, form, cell = one
    base = next((other for other in found if _is_base(other, one)), one)
    if base is one:
        return Gain(measured, form, cell, None, None, None, cell.usable, "" if cell.usable else ORIENTATION)
    named = (base[1], base[0].contract.size)
    stable = cell.usable and base[2].usable
    if report.damaged(measured) or report.damaged(base[0]):
        return Gain(measured, form, cell, named, None, None, stable, "not compared: cards in the residue state")
    speedup, efficiency = gain(base[2].step_s, named[1], cell.step_s, measured.contract.size)
    return Gain(measured, form, cell, named, speedup, efficiency, stable, "" if stable else ORIENTATION)


def _is_base(other: _Found, one: _Found) -> bool:
    """Whether a form of a smaller size is the base of another: the same arm under the same load and stack."""
    small, large = other[0].contract, one[0].contract
    if small.size >= large.size or fixed_facts(small) != fixed_facts(large):
        return False
    a, b = parse_form(other[1]), parse_form(one[1])
    return arm_of(a) == arm_of(b) or (small.size == 1 and _features(a) == _features(b))


def _features(form: Form) -> tuple[str, int]:
    return form.offload, form.mask_chunks


def table(report: Report) -> Table:
    """The speed-ups as a table; rows for orientation only are marked."""
    found = gains(report)
    rows = tuple(
        (
            str(row.measured.contract.size),
            row.form,
            row.measured.contract.link_class,
            number(row.cell.step_s, 4),
            str(row.cell.repeats),
            number(row.cell.dispersion_pct, 2),
            f"{row.base[0]} on {count_of(row.base[1])}" if row.base else "–",
            f"{row.speedup:.2f} ×" if row.speedup is not None else "–",
            f"{100 * row.efficiency:.0f} %" if row.efficiency is not None else "–",
            row.why or "usable",
        )
        for row in found
    )
    columns = ("cards", "form", "links", "s/step", "repeats", "dispersion %", "over", "speed-up", "efficiency", "cells")
    bad = frozenset(i for i, row in enumerate(found) if row.why)
    numeric = frozenset({"s/step", "repeats", "dispersion %", "speed-up", "efficiency"})
    return Table(columns, rows, numeric, bad, "Fewer than two sizes have a step time at the anchor tier.")
