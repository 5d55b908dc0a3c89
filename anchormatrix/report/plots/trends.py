"""The trend of a size: every series over its nights, with the boundaries between contracts drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from anchormatrix.history.review import Boundary, Review, SeriesReview
from anchormatrix.history.trend import Change, Judgement
from anchormatrix.report.plots.palette import PALETTE
from anchormatrix.report.plots.sheet import SMALL, WIDTH, Entry, Sheet
from anchormatrix.report.words import count_of

_LEFT, _RIGHT = 128.0, WIDTH - 22
_PANEL, _INSET = 50.0, 8.0
_LEAST_SPAN = 0.06
_TICKS = 5
_CALLED = (Change.REGRESSION, Change.IMPROVEMENT, Change.NEW_LEVEL)
_SHAPES = {"few": "circle", "anchor": "diamond"}
_KEY = (
    Entry("circle", "few", "few"),
    Entry("diamond", "anchor", "anchor"),
    Entry("circle", "muted", "too noisy to judge", hollow=True),
    Entry("cross", "bad", "slower beyond noise"),
    Entry("cross", "good", "faster beyond noise"),
    Entry("dash", "muted", "new contract: not compared across"),
)


def trends_of_size(review: Review, size: int) -> Sheet | None:
    """One panel per form and tier; nothing when the size has no series."""
    lines: dict[tuple[str, str], list[SeriesReview]] = {}
    for item in sorted((*review.series, *review.retired), key=lambda item: item.version):
        if item.size == size:
            lines.setdefault((item.series.form, item.series.tier), []).append(item)
    if not lines:
        return None
    days = [_day(point.night) for items in lines.values() for item in items for point in item.points]
    boundaries = [boundary for boundary in review.boundaries if boundary.size == size]
    versions = {item.series.contract: item.version for item in (*review.series, *review.retired)}
    sheet = Sheet(f"{count_of(size)} · seconds per denoise step, median of each night")
    sheet.key(_KEY)
    axes = None
    for (form, tier), items in sorted(lines.items()):
        axes = _panel(sheet, form, tier, items, (min(days), max(days)), boundaries, versions)
    if axes is not None:
        _dates(axes, min(days), max(days))
    sheet.y += 14
    return sheet.finish()


def _panel(
    sheet: Sheet,
    form: str,
    tier: str,
    items: Sequence[SeriesReview],
    days: tuple[int, int],
    boundaries: Sequence[Boundary],
    versions: Mapping[str, int],
) -> Axes:
    values = [point.step_s for item in items for point in item.points]
    middle = (min(values) + max(values)) / 2
    half = max(max(values) - min(values), _LEAST_SPAN * middle) / 2 * _PANEL / (_PANEL - 2 * _INSET)
    top, ink = sheet.y, PALETTE["muted"][0]
    axes = sheet.chart((_LEFT, top, _RIGHT, top + _PANEL), (days[0], max(days[1], days[0] + 1)))
    axes.set_ylim(middle - half, middle + half)
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.tick_params(axis="y", pad=8)
    axes.grid(axis="y", color=PALETTE["grid"][0], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xticks([])
    sheet.line([0, WIDTH], [top, top], "grid", width=0.6)
    sheet.text(0, top + 14, form, bold=True, room=_LEFT - 40)
    sheet.text(0, top + 25, tier, role="muted", size=SMALL, room=_LEFT - 40)
    for boundary in boundaries:
        x = _day(boundary.night) - 0.5
        axes.axvline(x, color=ink, linewidth=0.8, linestyle=(0, (4, 3)))
        version = f"v{versions.get(boundary.after, 0)}"
        axes.annotate(
            version, (x, 1), (2, -1), xycoords=("data", "axes fraction"), textcoords="offset points", va="top",
            fontsize=6.5, color=ink,
        )  # fmt: skip
    for item in items:
        _line(sheet, axes, tier, item)
    sheet.y += _PANEL
    return axes


def _line(sheet: Sheet, axes: Axes, tier: str, item: SeriesReview) -> None:
    role = tier if tier in _SHAPES else "muted"
    nights, steps = [_day(point.night) for point in item.points], [point.step_s for point in item.points]
    axes.plot(nights, steps, color=PALETTE[role][0], linewidth=0.8, clip_on=False)
    for night, point, judged in zip(nights, item.points, item.judgements, strict=True):
        tip = f"{point.night}: {point.step_s:.4f} s, dispersion {point.dispersion_pct:.1f} %"
        if judged is not None and judged.change in _CALLED:
            called = "bad" if judged.shift_pct > 0 else "good"
            sheet.mark(night, point.step_s, "cross", called, axes=axes, tip=f"{tip}; {_called_words(judged)}")
        else:
            shape = _SHAPES.get(tier, "circle")
            sheet.mark(night, point.step_s, shape, role, axes=axes, hollow=judged is None, scale=0.6, tip=tip)


def _called_words(judged: Judgement) -> str:
    return f"{judged.change.value} {judged.shift_pct:+.1f} %"


def _dates(axes: Axes, first: int, last: int) -> None:
    step = max((last - first) // _TICKS, 1)
    axes.xaxis.set_major_locator(FixedLocator(list(range(last, first - 1, -step))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda day, _: date.fromordinal(int(day)).isoformat()))


def _day(night: str) -> int:
    return date.fromisoformat(night).toordinal()
