"""Tables of what the report rests on: its cells, cells that were measured again, and files that could not be used."""

from __future__ import annotations

from anchormatrix.records.conclusions.cells import ALL
from anchormatrix.records.rerun import RerunCell
from anchormatrix.report.model import Report
from anchormatrix.report.tables.table import Table
from anchormatrix.report.words import minute, number

CELLS_NOTE = (
    "Median and dispersion of window all are those of all its repeats together, the drift between windows included."
)


def cells(report: Report) -> Table:
    """Every cell with its contract, window, repeats, median and dispersion."""
    found = [cell for measured in report.measured for cell in measured.cells.value or ()]
    notes = {measured.contract.id: report.note(measured) for measured in report.measured}
    noted = any(notes.values())
    rows = tuple(
        (
            cell.contract,
            cell.form,
            cell.tier,
            cell.window,
            str(cell.repeats),
            number(cell.step_s, 4),
            number(cell.dispersion_pct, 2),
            cell.rests_on or "–",
            "yes" if cell.usable else "no" + (f": {cell.reason}" if cell.reason else ""),
            *((notes.get(cell.contract, ""),) if noted else ()),
        )
        for cell in found
    )
    columns = ("contract", "form", "tier", "window", "repeats", "median s/step", "dispersion %", "rests on", "usable")
    return Table(
        (*columns, "note") if noted else columns,
        rows,
        frozenset({"repeats", "median s/step", "dispersion %"}),
        frozenset(i for i, cell in enumerate(found) if not cell.usable),
        "No cell was measured under a current contract.",
    )


def pooled_count(report: Report) -> int:
    """How many cells the report rests on."""
    return sum(cell.window == ALL for measured in report.measured for cell in measured.cells.value or ())


def reruns(report: Report) -> Table:
    """Cells that were measured again: the old and the new value."""
    rows = []
    for rerun in report.reruns:
        change = ""
        if rerun.before.step_s and rerun.after.step_s:
            change = f"{100 * (rerun.after.step_s / rerun.before.step_s - 1):+.2f} %"
        rows.append(
            (
                minute(rerun.when),
                rerun.contract,
                f"{rerun.form} {rerun.tier}",
                _with_dispersion(rerun.before),
                _with_dispersion(rerun.after),
                change,
                "\n".join(rerun.changed) or "nothing but the measurement",
            )
        )
    columns = ("when", "contract", "cell", "old s/step", "new s/step", "change", "what else changed")
    return Table(columns, tuple(rows), frozenset(columns[3:6]), empty="No cell was measured again.")


def _with_dispersion(cell: RerunCell) -> str:
    return number(cell.step_s, 4) + (f" ({cell.dispersion_pct:.2f} %)" if cell.dispersion_pct is not None else "")


def problems(report: Report) -> Table:
    """Files that could not be used."""
    return Table(("file", "why it was not used"), tuple((problem.file, problem.text) for problem in report.problems))
