"""The figures of the report by name: one list that the page, the files, the rules and the captions share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anchormatrix.history.review import Review
from anchormatrix.report import captions
from anchormatrix.report.model import Measured, Report
from anchormatrix.report.source import clean_text
from anchormatrix.store.files import write_bytes

if TYPE_CHECKING:
    from anchormatrix.report.plots.sheet import Sheet

TITLES = {
    "topology": "Cards, links and chosen groups",
    "step-times": "Few and anchor step times",
    "ratio": "Anchor against few",
    "dispersion": "Dispersion of cells",
    "window-drift": "Drift between windows",
    "step-parts": "Where the step goes",
    "step-differences": "What differs between forms",
    "masking-bound": "Masking against its bound",
    "layer-timeline": "One layer in time",
}
NAMES = tuple(TITLES)
SUFFIXES = ("svg", "png", "pdf")


@dataclass(frozen=True)
class Figure:
    """A figure of the report, in parts when there is one per contract: each as SVG for a page, and its reading."""

    name: str
    title: str
    parts: tuple[tuple[str, str], ...]

    @property
    def readings(self) -> tuple[str, ...]:
        """What the parts say, in words."""
        return tuple(reading for _, reading in self.parts)


def write_figures(report: Report, folder: Path) -> dict[str, Figure]:
    """Draw every figure and write it as SVG, PNG and PDF; one that cannot be drawn says why, so all files exist.

    One part is in memory at a time. Raises :class:`WriteError` when a file cannot be written.
    """
    from anchormatrix.report.plots.output import collecting_figures, drawn  # noqa: PLC0415  loads matplotlib
    from anchormatrix.report.plots.sheet import style  # noqa: PLC0415

    found = {}
    with style(), collecting_figures():
        for name, parts in _contents(report).items():
            readings = [clean_text(reading) for _, reading in parts]
            said = " ".join(filter(None, readings))
            picture = drawn(name, TITLES[name], said, (draw() for draw, _ in parts))
            for suffix in SUFFIXES:
                write_bytes(folder / f"{name}.{suffix}", picture.files[suffix])
            found[name] = Figure(name, TITLES[name], tuple(zip(picture.inline, readings, strict=True)))
    return found


def trend_pictures(review: Review) -> list[str]:
    """The trends of every size as SVG for a page."""
    from anchormatrix.report.plots.output import inline  # noqa: PLC0415  loads matplotlib
    from anchormatrix.report.plots.sheet import style  # noqa: PLC0415
    from anchormatrix.report.plots.trends import trends_of_size  # noqa: PLC0415

    sizes = sorted({item.size for item in (*review.series, *review.retired)})
    with style():
        return [inline(f"trend-{size}", sheet) for size in sizes if (sheet := trends_of_size(review, size))]


@contextmanager
def fonts_kept_in(folder: Path) -> Iterator[None]:
    """Where matplotlib keeps its list of fonts while figures are drawn, unless ``MPLCONFIGDIR`` says another place.

    Otherwise it would be the home folder, which need not be writable and is nobody's result.
    """
    if "MPLCONFIGDIR" in os.environ:
        yield
        return
    os.environ["MPLCONFIGDIR"] = str(folder.absolute())
    try:
        yield
    finally:
        del os.environ["MPLCONFIGDIR"]


_Part = tuple[Callable[[], "Sheet"], str]


def _contents(report: Report) -> dict[str, list[_Part]]:
    """How every figure's parts are drawn, and their readings; the order is that of ``NAMES``."""
    from anchormatrix.report.plots import captures, charts, timeline, topology  # noqa: PLC0415  load matplotlib

    return {
        "topology": [(partial(topology.host_picture, report), "")],
        "step-times": _each(report, partial(charts.step_times, report), partial(captions.of_step_times, report)),
        "ratio": [(partial(charts.ratios, report), captions.of_ratios(report))],
        "dispersion": [(partial(charts.dispersions, report), captions.of_dispersions(report))],
        "window-drift": [(partial(charts.drifts, report), captions.of_drifts(report))],
        "step-parts": _each(report, captures.step_parts, captions.of_step_parts),
        "step-differences": _each(report, captures.differences, captions.of_differences),
        "masking-bound": _each(report, captures.masking, captions.of_masking),
        "layer-timeline": _each(report, timeline.layers, captions.of_layers),
    }


def _each(report: Report, draw: Callable[[Measured], Sheet], read: Callable[[Measured], str]) -> list[_Part]:
    from anchormatrix.report.plots.sheet import note  # noqa: PLC0415

    parts: list[_Part] = [(partial(draw, measured), read(measured)) for measured in report.measured]
    return parts or [(partial(note, "No current contract", "there is no card group to show"), "")]
