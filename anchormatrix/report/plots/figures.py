"""The pictures of the report by name: one list that the page, the files and the captions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from anchormatrix.report import captions as readings
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.plots import charts, step_pictures
from anchormatrix.report.plots.svg import Drawing, note, standalone
from anchormatrix.report.plots.topology import host_picture

NAMES = (
    "topology",
    "step-times",
    "ratio",
    "dispersion",
    "window-drift",
    "step-parts",
    "step-differences",
    "masking-bound",
    "layer-timeline",
)


@dataclass(frozen=True)
class Figure:
    """A picture, in parts when there is one per contract, each with its sentence of reading."""

    name: str
    title: str
    parts: tuple[tuple[Drawing, str], ...]

    @property
    def file_text(self) -> str:
        """The figure as one SVG file."""
        return standalone(self.title, [drawing for drawing, _ in self.parts])


def all_figures(report: Report) -> dict[str, Figure]:
    """Every figure by name. One that cannot be drawn says why, so that every file always exists."""
    found = [
        Figure("topology", "Cards, links and chosen groups", ((host_picture(report), ""),)),
        Figure(
            "step-times",
            "Few and anchor step times",
            _each(report, partial(charts.step_times, report), partial(readings.of_step_times, report)),
        ),
        Figure("ratio", "Anchor against few", ((charts.ratios(report), readings.of_ratios(report)),)),
        Figure("dispersion", "Dispersion of cells", ((charts.dispersions(report), readings.of_dispersions(report)),)),
        Figure("window-drift", "Drift between windows", ((charts.drifts(report), readings.of_drifts(report)),)),
        Figure("step-parts", "Where the step goes", _each(report, step_pictures.step_parts, readings.of_step_parts)),
        Figure(
            "step-differences",
            "What differs between forms",
            _each(report, step_pictures.differences, readings.of_differences),
        ),
        Figure("masking-bound", "Masking against its bound", _each(report, step_pictures.masking, readings.of_masking)),
        Figure("layer-timeline", "One layer in time", _each(report, step_pictures.layers, readings.of_layers)),
    ]
    return {figure.name: figure for figure in found}


def _each(
    report: Report, draw: Callable[[Measured], Drawing], read: Callable[[Measured], str]
) -> tuple[tuple[Drawing, str], ...]:
    parts = tuple((draw(measured), read(measured)) for measured in report.measured)
    return parts or ((note("No current contract", "there is no card group to show"), ""),)
