"""Measurements, one row per value: step times, extrapolation ratio, dispersion and drift between windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchormatrix.records.conclusions.cells import Cell
from anchormatrix.records.settings.values import ANCHOR, FEW
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.plots.palette import PALETTE
from anchormatrix.report.plots.sheet import SMALL, WIDTH, Entry, Sheet, note, text_width, x_axis
from anchormatrix.report.words import count_of

_PITCH, _GAP = 17.0, 5.0  # between rows, and before the rows of another form
_LABELS = 150.0  # the most that labels at the left may take, and words at the right
_SHAPES: dict[str, str] = {FEW: "circle", ANCHOR: "diamond"}
_WINDOWS = [Entry("circle", "muted", "window 1"), Entry("circle", "muted", "window 2", hollow=True)]


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
    zero: bool = False


def strip(title: str, rows: Sequence[Row], scale: Scale, key: Sequence[Entry], words: str = "") -> Sheet:
    """Rows of marks over one axis; ``words`` heads the column of numbers at the right."""
    sheet = Sheet(title)
    sheet.key(key)
    label = min(max(text_width(row.label, 8.5, bold=row.strong) for row in rows) + 10, _LABELS)
    left = label + min(max(text_width(row.tier, SMALL) for row in rows) + 14, _LABELS / 2)
    right = WIDTH - min(max(text_width(text, SMALL) for text in (words, *(row.words for row in rows))) + 14, _LABELS)
    sheet.text(WIDTH, sheet.y + 4, words, role="muted", align="right", size=SMALL)
    top, heights = sheet.y + (7 if words else 0), _heights(rows)
    bottom = top + heights[-1] + 12
    axes = sheet.chart((left, top, right, bottom), (scale.low, scale.high))
    x_axis(axes, scale.title, scale.write)
    if scale.band:
        axes.axvspan(*scale.band, color=PALETTE["band"][0], linewidth=0, zorder=0)
    if scale.zero:
        axes.axvline(0, color=PALETTE["muted"][0], linewidth=0.8, zorder=1)
    if scale.limit is not None:
        axes.axvline(scale.limit, color=PALETTE["bad"][0], linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    for i, (row, height) in enumerate(zip(rows, heights, strict=True)):
        y = top + height
        if i == 0 or row.label != rows[i - 1].label:
            sheet.text(0, y, row.label, bold=row.strong, room=label - 8)
            if i:
                sheet.line([0, WIDTH], [y - _PITCH / 2 - _GAP / 2] * 2, "grid", width=0.6)
        sheet.text(label, y, row.tier, role="muted", size=SMALL, room=left - label - 8)
        if row.tick is not None:
            axes.plot([row.tick] * 2, [y - 7.5, y + 7.5], color=PALETTE[row.role][0], linewidth=1.4, zorder=5)
        for mark in row.marks:
            sheet.mark(mark.value, y - mark.lift, mark.shape, mark.role, axes=axes, hollow=mark.hollow, tip=mark.tip)
        role = "bad" if row.role == "bad" else "ink"
        sheet.text(WIDTH, y, row.words, role=role, align="right", size=SMALL, room=WIDTH - right - 4)
    sheet.y = bottom + 26
    return sheet.finish()


def _heights(rows: Sequence[Row]) -> list[float]:
    """How far below the top of a strip each row lies."""
    found, y = [], 0.0
    for i, row in enumerate(rows):
        y += _PITCH + (_GAP if i and row.label != rows[i - 1].label else 0)
        found.append(y)
    return found


def step_times(report: Report, measured: Measured) -> Sheet:
    """Every repeat of every cell of one contract, with the median of all windows."""
    contract = measured.contract
    title = f"{count_of(contract.size)} · {contract.id} v{contract.version} · seconds per denoise step"
    winner = measured.verdict.value.winner if measured.verdict.value else None
    rows, values = [], []
    for form in measured.measured_forms:
        for tier in (FEW, ANCHOR):
            cells = measured.windows(form, tier)
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
    key = [
        Entry("circle", FEW, f"few, {report.tiers.get(FEW, '?')} steps"),
        Entry("diamond", ANCHOR, f"anchor, {report.tiers.get(ANCHOR, '?')} steps"),
        *_WINDOWS,
        Entry("bar", "muted", "median of all repeats"),
    ]
    return strip(title, rows, _fitting(values), key, "median · dispersion · repeats")


def ratios(report: Report) -> Sheet:
    """r − 1 of every form, with the band inside which the few-step tier may stand for the anchor."""
    title, limit = "Anchor against few: r − 1, by form", report.limits.drift_pct
    rows = []
    for measured in report.measured:
        found = measured.verdict.value.r if measured.verdict.value else {}
        for form, ratio in found.items():
            off = 100 * (ratio - 1)
            role = "muted" if not measured.readable(form) else "good" if abs(off) <= limit else "bad"
            mark = Mark(off, "cross" if role == "bad" else "circle", role, f"{form}: r = {ratio:.4f}", role == "muted")
            words = f"r = {ratio:.3f}" + (", unusable" if role == "muted" else "")
            rows.append(Row(form, count_of(measured.contract.size), (mark,), words, role=role))
    if not rows:
        return note(title, "no form has both tiers measured")
    reach = 1.15 * max([1.6 * limit, *(abs(mark.value) for row in rows for mark in row.marks)])
    scale = Scale(-reach, reach, _signed_pct, f"r − 1, band ±{limit:g} %", (-limit, limit), zero=True)
    key = [
        Entry("circle", "good", "inside the band"),
        Entry("cross", "bad", "outside: the step time drifts with the step count"),
        Entry("block", "band", f"±{limit:g} %"),
    ]
    if any(row.role == "muted" for row in rows):
        key.insert(2, Entry("circle", "muted", "from unusable cells, not read", hollow=True))
    return strip(title, rows, scale, key)


def dispersions(report: Report) -> Sheet:
    """Dispersion of every cell against the limit."""
    title, limit = "Dispersion of each cell: (max − min) ÷ median", report.limits.dispersion_pct
    rows = []
    for measured in report.measured:
        for form in measured.measured_forms:
            for tier in (FEW, ANCHOR):
                pooled = measured.cell(form, tier)
                cells = measured.windows(form, tier)
                if not pooled or pooled.dispersion_pct is None:
                    continue
                role = "ink" if pooled.usable else "bad"
                marks = tuple(
                    Mark(cell.dispersion_pct, _SHAPES[tier], tier, f"window {cell.window}", bool(i))
                    for i, cell in enumerate(cells)
                )
                words = f"{pooled.dispersion_pct:.2f} %" + ("" if pooled.usable else ", unusable")
                rows.append(Row(form, _tier_words(report, tier), marks, words, pooled.dispersion_pct, role))
    if not rows:
        return note(title, "no cell holds repeats")
    reach = 1.1 * max([1.4 * limit, *(row.tick or 0 for row in rows), *(m.value for row in rows for m in row.marks)])
    scale = Scale(0, reach, lambda value: f"{value:g} %", f"dispersion, limit {limit:g} %", limit=limit)
    key = [
        *_WINDOWS,
        Entry("bar", "muted", "all windows together, which count"),
        Entry("dash", "bad", "limit: above it, no ranking"),
    ]
    return strip(title, rows, scale, key)


def drifts(report: Report) -> Sheet:
    """How far each cell moved between its windows."""
    title, limit = "Second window against the first: change of each cell's median", report.limits.window_drift_pct
    rows = []
    for measured in report.measured:
        for drift in measured.verdict.value.window_drift if measured.verdict.value else ():
            role = "bad" if drift.exceeds else "good"
            mark = Mark(drift.drift_pct, "cross" if drift.exceeds else _SHAPES.get(drift.tier, "circle"), role, "")
            rows.append(
                Row(drift.form, _tier_words(report, drift.tier), (mark,), _signed_pct(drift.drift_pct, 2), role=role)
            )
    if not rows:
        return note(title, "no cell was measured in two windows")
    reach = 1.15 * max([1.4 * limit, *(abs(mark.value) for row in rows for mark in row.marks)])
    scale = Scale(-reach, reach, _signed_pct, f"change between windows, limit ±{limit:g} %", (-limit, limit), zero=True)
    key = [
        Entry("circle", "good", "few, within the limit"),
        Entry("diamond", "good", "anchor, within the limit"),
        Entry("cross", "bad", "beyond it"),
        Entry("block", "band", f"±{limit:g} %"),
    ]
    return strip(title, rows, scale, key)


def _repeats(cell: Cell, tier: str, index: int, windows: int) -> list[Mark]:
    lift = 3.4 * (1 - 2 * index / (windows - 1)) if windows > 1 else 0.0
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
    if cell is None:
        return "not measured"
    return f"{cell.step_s:.3f} s · {cell.dispersion_pct:.1f} % · n {cell.repeats}"


def _tier_words(report: Report, tier: str) -> str:
    return f"{tier}, {report.tiers[tier]} steps" if tier in report.tiers else tier


def _signed_pct(value: float, digits: int = 0) -> str:
    shown = f"{abs(value):.{digits}f}" if digits else f"{abs(value):g}"
    sign = "−" if value < 0 else "+" if value > 0 else "±"
    return f"{sign}{shown} %"
