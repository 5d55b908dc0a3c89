"""Pictures of the trend: every series of a size over its nights, with the boundaries between contracts drawn."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from anchormatrix.history.query import Point
from anchormatrix.history.review import Boundary, Review, SeriesReview
from anchormatrix.history.trend import Change, Judgement
from anchormatrix.report.plots.svg import WIDTH, Drawing, fitted, ticks

_LEFT, _RIGHT = 250.0, 1000.0
_PANEL, _INSET = 84.0, 12.0
_LEAST_SPAN = 0.06
_TICKS = 8
_CALLED = (Change.REGRESSION, Change.IMPROVEMENT, Change.NEW_LEVEL)
_SHAPES = {"few": "circle", "anchor": "diamond"}


@dataclass(frozen=True)
class _Axes:
    """Where a night and a step time lie in one panel."""

    first: int
    last: int
    low: float
    high: float
    top: float

    def x(self, night: str) -> float:
        span = max(self.last - self.first, 1)
        return _LEFT + (date.fromisoformat(night).toordinal() - self.first) / span * (_RIGHT - _LEFT)

    def y(self, step_s: float) -> float:
        room = _PANEL - 2 * _INSET
        return self.top + _INSET + (self.high - step_s) / (self.high - self.low) * room


def trends_of_size(review: Review, size: int) -> Drawing | None:
    """One panel per form and tier; nothing when the size has no series."""
    lines: dict[tuple[str, str], list[SeriesReview]] = {}
    for item in sorted((*review.series, *review.retired), key=lambda item: item.version):
        if item.size == size:
            lines.setdefault((item.series.form, item.series.tier), []).append(item)
    if not lines:
        return None
    days = [day for items in lines.values() for item in items for day in _days(item.points)]
    boundaries = [boundary for boundary in review.boundaries if boundary.size == size]
    drawing = Drawing(f"{size} cards, seconds per denoise step, night by night")
    drawing.text(0, 15, f"{size} cards · seconds per denoise step, median of each night", bold=True, size=13.5)
    drawing.legend(
        38,
        [
            ("circle", "few", "few", False),
            ("diamond", "anchor", "anchor", False),
            ("circle", "muted", "too noisy to judge", True),
            ("cross", "bad", "slower beyond noise", False),
            ("cross", "good", "faster beyond noise", False),
            ("dash", "muted", "new contract: not compared across", False),
        ],
    )
    top = 52.0
    for (form, tier), items in sorted(lines.items()):
        _panel(drawing, top, form, tier, items, (min(days), max(days)), boundaries, _versions(review))
        top += _PANEL
    _dates(drawing, top, min(days), max(days))
    drawing.height = top + 22
    return drawing


def _panel(
    drawing: Drawing,
    top: float,
    form: str,
    tier: str,
    items: Sequence[SeriesReview],
    days: tuple[int, int],
    boundaries: Sequence[Boundary],
    versions: Mapping[str, int],
) -> None:
    values = [point.step_s for item in items for point in item.points]
    middle = (min(values) + max(values)) / 2
    half = max(max(values) - min(values), _LEAST_SPAN * middle) / 2
    axes = _Axes(*days, middle - half, middle + half, top)
    drawing.line(0, top, WIDTH, top, "grid")
    drawing.text(0, top + 24, fitted(form, 170), bold=True)
    drawing.text(0, top + 41, tier, role="muted", size=12)
    for value in ticks(axes.low, axes.high, 3):
        drawing.line(_LEFT, axes.y(value), _RIGHT, axes.y(value), "grid")
        drawing.text(_LEFT - 10, axes.y(value) + 4, f"{value:.4g}", role="muted", anchor="end", size=11)
    for boundary in boundaries:
        x = axes.x(boundary.night) - 4
        drawing.line(x, top, x, top + _PANEL, "muted", dash="5 4")
        drawing.text(x + 4, top + 11, f"v{versions.get(boundary.after, 0)}", role="muted", size=10.5)
    for item in items:
        _line(drawing, axes, tier, item)


def _line(drawing: Drawing, axes: _Axes, tier: str, item: SeriesReview) -> None:
    role = tier if tier in _SHAPES else "muted"
    at = [(axes.x(point.night), axes.y(point.step_s)) for point in item.points]
    for (x1, y1), (x2, y2) in itertools.pairwise(at):
        drawing.line(x1, y1, x2, y2, role, width=1.2)
    for (x, y), point, judged in zip(at, item.points, item.judgements, strict=True):
        tip = f"{point.night}: {point.step_s:.4f} s, dispersion {point.dispersion_pct:.1f} %"
        if judged is not None and judged.change in _CALLED:
            slower = judged.shift_pct > 0
            drawing.marker(x, y, "cross", "bad" if slower else "good", tip=f"{tip}; {_called_words(judged)}")
        else:
            drawing.marker(x, y, _SHAPES.get(tier, "circle"), role, hollow=judged is None, size=2.8, tip=tip)


def _called_words(judged: Judgement) -> str:
    return f"{judged.change.value} {judged.shift_pct:+.1f} %"


def _dates(drawing: Drawing, y: float, first: int, last: int) -> None:
    drawing.line(_LEFT, y, _RIGHT, y, "muted")
    step = max((last - first) // _TICKS, 1)
    for day in range(last, first - 1, -step):
        x = _LEFT + (day - first) / max(last - first, 1) * (_RIGHT - _LEFT)
        drawing.text(x, y + 16, date.fromordinal(day).isoformat(), role="muted", anchor="middle", size=11)


def _versions(review: Review) -> dict[str, int]:
    return {item.series.contract: item.version for item in (*review.series, *review.retired)}


def _days(points: Sequence[Point]) -> list[int]:
    return [date.fromisoformat(point.night).toordinal() for point in points]
