"""Pictures of the measurements: step times, extrapolation ratio, dispersion and window drift, one row per value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchormatrix.records.settings import ANCHOR, FEW
from anchormatrix.report.facts import Cell
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.plots.svg import WIDTH, Drawing, fitted, note, ticks

_LABEL, _TIER, _RIGHT = 0.0, 212.0, 850.0
_PLOT = 330.0
_PITCH = 25.0
_SHAPES = {FEW: "circle", ANCHOR: "diamond"}
_WINDOW_LEGEND = [("circle", "muted", "window 1", False), ("circle", "muted", "window 2", True)]


@dataclass(frozen=True)
class Mark:
    """One value on a row; ``lift`` moves it up so that windows do not hide one another."""

    value: float
    shape: str
    role: str
    tip: str
    hollow: bool = False
    lift: float = 0.0


@dataclass(frozen=True)
class Row:
    """A row of marks. ``tick`` is a bar at one value; ``words`` stand at the right. Equal labels are one block."""

    label: str
    tier: str
    marks: tuple[Mark, ...]
    words: str
    tick: float | None = None
    role: str = "ink"
    strong: bool = False


@dataclass(frozen=True)
class Scale:
    """The value axis of a strip: its range, how values are written, and a band or a limit drawn behind the marks."""

    low: float
    high: float
    write: Callable[[float], str]
    title: str
    band: tuple[float, float] | None = None
    limit: float | None = None
    zero: float | None = None

    def x(self, value: float) -> float:
        """Where a value lies."""
        return _PLOT + (value - self.low) / (self.high - self.low) * (_RIGHT - _PLOT)


Legend = list[tuple[str, str, str, bool]]


def strip(title: str, rows: Sequence[Row], scale: Scale, legend: Legend, words: str = "") -> Drawing:
    """Draw rows of marks over one axis; ``words`` heads the column of figures at the right."""
    drawing = Drawing(title)
    drawing.text(WIDTH, 38, words, role="muted", anchor="end", size=12)
    drawing.heading()
    drawing.legend(38, legend)
    top = y = 56.0
    blocks: list[float] = []
    starts = [i == 0 or row.label != rows[i - 1].label for i, row in enumerate(rows)]
    for i, starts_block in enumerate(starts):
        y += _PITCH + (10 if i and starts_block else 0)
        blocks.append(y)
    bottom = blocks[-1] + 15
    _backdrop(drawing, scale, top, bottom)
    for row, at, starts_block in zip(rows, blocks, starts, strict=True):
        if starts_block and at != blocks[0]:
            drawing.line(0, at - _PITCH / 2 - 5, WIDTH, at - _PITCH / 2 - 5, "grid")
        if starts_block:
            drawing.text(_LABEL, at + 4, fitted(row.label, _TIER - 8), bold=row.strong)
        drawing.text(_TIER, at + 4, row.tier, role="muted", size=12)
        if row.tick is not None:
            drawing.line(scale.x(row.tick), at - 12, scale.x(row.tick), at + 12, row.role, width=2.4)
        for mark in row.marks:
            drawing.marker(scale.x(mark.value), at - mark.lift, mark.shape, mark.role, hollow=mark.hollow, tip=mark.tip)
        drawing.text(WIDTH, at + 4, row.words, role="bad" if row.role == "bad" else "ink", anchor="end", size=12)
    drawing.height = bottom + 36
    return drawing


def _backdrop(drawing: Drawing, scale: Scale, top: float, bottom: float) -> None:
    if scale.band:
        low, high = (scale.x(min(max(edge, scale.low), scale.high)) for edge in scale.band)
        drawing.rect(low, top, high - low, bottom - top, "band")
    for value in ticks(scale.low, scale.high):
        drawing.line(scale.x(value), top, scale.x(value), bottom, "grid")
        drawing.text(scale.x(value), bottom + 15, scale.write(value), role="muted", anchor="middle", size=11.5)
    if scale.zero is not None:
        drawing.line(scale.x(scale.zero), top, scale.x(scale.zero), bottom, "muted")
    if scale.limit is not None:
        drawing.line(scale.x(scale.limit), top, scale.x(scale.limit), bottom, "bad", width=1.6, dash="5 4")
    drawing.text((_PLOT + _RIGHT) / 2, bottom + 32, scale.title, role="muted", anchor="middle", size=11.5)


def step_times(report: Report, measured: Measured) -> Drawing:
    """Every repeat of every cell of one contract, with the median of all windows."""
    contract = measured.contract
    title = f"{contract.size} cards · {contract.id} v{contract.version} · seconds per denoise step"
    winner = measured.verdict.value.winner if measured.verdict.value else None
    rows, values = [], []
    for form in measured.measured_forms:
        for tier in (FEW, ANCHOR):
            cells = [cell for cell in measured.windows(form, tier) if cell.values_s]
            pooled = measured.cell(form, tier)
            shown = cells or ([pooled] if pooled and pooled.values_s else [])
            marks = [mark for i, cell in enumerate(shown) for mark in _repeats(cell, tier, i, len(shown))]
            values += [mark.value for mark in marks]
            rows.append(
                Row(
                    label=form,
                    tier=_tier_words(report, tier),
                    marks=tuple(marks),
                    words=_cell_words(pooled),
                    tick=pooled.step_s if pooled else None,
                    role="bad" if pooled and not pooled.usable else "ink",
                    strong=form == winner,
                )
            )
    if not values:
        return note(title, measured.cells.missing or "no cell of this contract holds a number")
    legend: Legend = [
        ("circle", FEW, f"few, {report.tiers.get(FEW, '?')} steps", False),
        ("diamond", ANCHOR, f"anchor, {report.tiers.get(ANCHOR, '?')} steps", False),
        *_WINDOW_LEGEND,
        ("tick", "muted", "median of all repeats", False),
    ]
    return strip(title, rows, _fitting(values), legend, "median · dispersion · repeats")


def ratios(report: Report) -> Drawing:
    """r − 1 of every form, with the band inside which the few-step tier may stand for the anchor."""
    title, limit = "Anchor against few: r − 1, by form", report.drift_limit_pct
    rows = []
    for measured in report.measured:
        found = measured.verdict.value.ratio if measured.verdict.value else {}
        for form, ratio in found.items():
            off = 100 * (ratio - 1)
            role = "muted" if not measured.readable(form) else "good" if abs(off) <= limit else "bad"
            mark = Mark(off, "cross" if role == "bad" else "circle", role, f"{form}: r = {ratio:.4f}", role == "muted")
            words = f"r = {ratio:.3f}" + (", unusable" if role == "muted" else "")
            rows.append(Row(form, f"{measured.contract.size} cards", (mark,), words, role=role))
    if not rows:
        return note(title, "no form has both tiers measured")
    reach = 1.15 * max([1.6 * limit, *(abs(mark.value) for row in rows for mark in row.marks)])
    scale = Scale(-reach, reach, _signed_pct, f"r − 1, band ±{limit:g} %", (-limit, limit), zero=0)
    legend: Legend = [
        ("circle", "good", "inside the band", False),
        ("cross", "bad", "outside: the step time drifts with the step count", False),
        ("block", "band", f"±{limit:g} %", False),
    ]
    if any(row.role == "muted" for row in rows):
        legend.insert(2, ("circle", "muted", "from unusable cells, not read", True))
    return strip(title, rows, scale, legend)


def dispersions(report: Report) -> Drawing:
    """Dispersion of every cell against the limit."""
    title, limit = "Dispersion of each cell: (max − min) ÷ median", report.dispersion_limit_pct
    rows = []
    for measured in report.measured:
        for form in measured.measured_forms:
            for tier in (FEW, ANCHOR):
                pooled = measured.cell(form, tier)
                cells = [cell for cell in measured.windows(form, tier) if cell.dispersion_pct is not None]
                if not pooled or pooled.dispersion_pct is None:
                    continue
                role = "ink" if pooled.usable else "bad"
                marks = tuple(
                    Mark(cell.dispersion_pct or 0, _SHAPES[tier], tier, f"window {cell.window}", bool(i))
                    for i, cell in enumerate(cells)
                )
                words = f"{pooled.dispersion_pct:.2f} %" + ("" if pooled.usable else ", unusable")
                rows.append(Row(form, _tier_words(report, tier), marks, words, pooled.dispersion_pct, role))
    if not rows:
        return note(title, "no cell holds repeats")
    reach = 1.1 * max([1.4 * limit, *(row.tick or 0 for row in rows), *(m.value for row in rows for m in row.marks)])
    scale = Scale(0, reach, lambda value: f"{value:g} %", f"dispersion, limit {limit:g} %", limit=limit)
    legend: Legend = [
        *_WINDOW_LEGEND,
        ("tick", "muted", "worst window, which counts", False),
        ("dash", "bad", "limit: above it, no ranking", False),
    ]
    return strip(title, rows, scale, legend)


def drifts(report: Report) -> Drawing:
    """How far each cell moved between its windows."""
    title, limit = "Second window against the first: change of each cell's median", report.window_drift_limit_pct
    rows = []
    for measured in report.measured:
        for drift in measured.verdict.value.drifts if measured.verdict.value else ():
            role = "bad" if drift.exceeds else "good"
            mark = Mark(drift.drift_pct, "cross" if drift.exceeds else _SHAPES.get(drift.tier, "circle"), role, "")
            rows.append(
                Row(drift.form, _tier_words(report, drift.tier), (mark,), _signed_pct(drift.drift_pct, 2), role=role)
            )
    if not rows:
        return note(title, "no cell was measured in two windows")
    reach = 1.15 * max([1.4 * limit, *(abs(mark.value) for row in rows for mark in row.marks)])
    scale = Scale(-reach, reach, _signed_pct, f"change between windows, limit ±{limit:g} %", (-limit, limit), zero=0)
    legend: Legend = [
        ("circle", "good", "few, within the limit", False),
        ("diamond", "good", "anchor, within the limit", False),
        ("cross", "bad", "beyond it", False),
        ("block", "band", f"±{limit:g} %", False),
    ]
    return strip(title, rows, scale, legend)


def _repeats(cell: Cell, tier: str, index: int, windows: int) -> list[Mark]:
    lift = 4.0 * (1 - 2 * index / (windows - 1)) if windows > 1 else 0.0
    return [
        Mark(value, _SHAPES[tier], tier, f"window {cell.window}, repeat {i}: {value:.4f} s", bool(index), lift)
        for i, value in enumerate(cell.values_s, start=1)
    ]


def _fitting(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    span = max(high - low, 0.05 * high, 1e-9) * 1.16
    middle = (low + high) / 2
    digits = 3 if span < 0.2 else 2 if span < 2 else 1
    return Scale(middle - span / 2, middle + span / 2, lambda value: f"{value:.{digits}f}", "s per step")


def _cell_words(cell: Cell | None) -> str:
    if cell is None or cell.step_s is None:
        return "not measured"
    spread = "" if cell.dispersion_pct is None else f" · {cell.dispersion_pct:.1f} %"
    return f"{cell.step_s:.3f} s{spread} · n {cell.repeats}"


def _tier_words(report: Report, tier: str) -> str:
    return f"{tier}, {report.tiers[tier]} steps" if tier in report.tiers else tier


def _signed_pct(value: float, digits: int = 0) -> str:
    shown = f"{abs(value):.{digits}f}" if digits else f"{abs(value):g}"
    sign = "−" if value < 0 else "+" if value > 0 else "±"
    return f"{sign}{shown} %"
