"""A sheet that figures are drawn on: matplotlib, laid out in points from the top left, coloured by roles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Affine2D

from anchormatrix.report.plots.palette import PALETTE
from anchormatrix.report.source import clean_text

WIDTH = 468.0  # points: 6.5 inches, the text width of a page of paper
TEXT, SMALL = 8.5, 7.5
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # the one that matplotlib brings, so that every machine draws the same
    "text.parse_math": False,  # a dollar sign from outside is a dollar sign
    "text.usetex": False,
    "text.hinting": "no_hinting",  # as SVG and PDF: the PNG has enough pixels, and its letters the same widths
    "svg.fonttype": "none",
    "svg.hashsalt": "anchormatrix",
    "figure.facecolor": PALETTE["paper"][0],
    "path.simplify": False,
}
MARGIN = 6.0
_MARKERS = {"circle": "o", "diamond": "D", "cross": "x"}
_SIZES = {"circle": 5.0, "diamond": 4.6, "cross": 5.6}


@dataclass(frozen=True)
class Entry:
    """One entry of a key: a ``shape`` (a mark, ``block``, ``bar``, ``line`` or ``dash``), its role, and its words."""

    shape: str
    role: str
    words: str
    hollow: bool = False


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, inside which they are made and written. A letter that the font lacks is a box."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class Sheet:
    """One figure under construction. ``y`` is where the next thing goes; it grows downwards.

    ``tips`` are words by id of a drawn thing: the SVG shows them when the pointer rests on it.
    """

    def __init__(self, title: str) -> None:
        self.title = clean_text(title)
        self.figure = Figure(figsize=(WIDTH / 72, 1))
        self.tips: dict[str, str] = {}
        self.y = 0.0
        self._charts: list[tuple[Axes, tuple[float, float, float, float]]] = []
        self._points = Affine2D()
        self._place = self._points + self.figure.dpi_scale_trans
        self.text(0, 6, self.title, size=9.5, bold=True, room=WIDTH)
        self.y = 18.0

    def finish(self) -> Sheet:
        """Give the figure its height, and every chart its place in it."""
        width, height = WIDTH + 2 * MARGIN, self.y + 2 * MARGIN
        self.figure.set_size_inches(width / 72, height / 72)
        self._points.clear().translate(MARGIN, MARGIN - height).scale(1 / 72, -1 / 72)
        for axes, (left, top, right, bottom) in self._charts:
            box = (left + MARGIN, height - MARGIN - bottom, right - left, bottom - top)
            axes.set_position((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
        return self

    def chart(self, box: tuple[float, float, float, float], span: tuple[float, float]) -> Axes:
        """Axes in a box (left, top, right, bottom): x runs over ``span``, y is the sheet's."""
        axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(*span)
        axes.set_ylim(box[3], box[1])
        axes.set_yticks([])
        axes.patch.set_visible(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=3, labelsize=SMALL, labelcolor=PALETTE["muted"][0])
        self._charts.append((axes, box))
        return axes

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        role: str = "ink",
        align: str = "left",
        size: float = TEXT,
        bold: bool = False,
        room: float = WIDTH,
    ) -> None:
        """Words with their middle at height ``y``, shortened to ``room``; ``align`` is left, center or right."""
        shown = fitted(clean_text(words), room, size, bold=bold)
        self.figure.text(
            x,
            y,
            shown,
            transform=self._place,
            horizontalalignment=align,
            verticalalignment="center_baseline",
            fontsize=size,
            fontweight="bold" if bold else "normal",
            color=PALETTE[role][0],
            zorder=5,
        )

    def add(self, drawn: Artist, tip: str = "") -> None:
        """Put something drawn in the sheet's points on it; the SVG shows ``tip`` when the pointer rests there."""
        drawn.set_transform(self._place)
        self.figure.add_artist(drawn)
        self._tip(drawn, tip)

    def block(self, x: float, y: float, width: float, height: float, role: str, *, tip: str = "") -> None:
        """A filled rectangle."""
        right, bottom = x + max(width, 0.0), y + height
        outline = Path([(x, y), (right, y), (right, bottom), (x, bottom), (x, y)], closed=True)
        self.add(PathPatch(outline, facecolor=PALETTE[role][0], edgecolor="none"), tip)

    def card(
        self, x: float, y: float, width: float, height: float, role: str, *, inside: str = "", tip: str = ""
    ) -> None:
        """An outlined rectangle with round corners."""
        shape = FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={min(4.0, width / 4)}",
            facecolor=PALETTE[inside][0] if inside else "none",
            edgecolor=PALETTE[role][0],
            linewidth=0.9,
        )
        self.add(shape, tip)

    def line(
        self, x: Sequence[float], y: Sequence[float], role: str, *, width: float = 0.8, dash: bool = False
    ) -> None:
        """A line through points."""
        line = Line2D(x, y, color=PALETTE[role][0], linewidth=width, solid_capstyle="butt", zorder=1)
        line.set_linestyle((0, (4, 3)) if dash else "-")
        self.add(line)

    def mark(
        self,
        x: float,
        y: float,
        shape: str,
        role: str,
        *,
        axes: Axes | None = None,
        hollow: bool = False,
        scale: float = 1.0,
        tip: str = "",
    ) -> None:
        """A mark: ``circle``, ``diamond`` or ``cross``; hollow ones show the paper inside. ``axes`` give x a value."""
        mark = Line2D(
            [x],
            [y],
            linestyle="none",
            marker=_MARKERS[shape],
            markersize=_SIZES[shape] * scale,
            markerfacecolor=PALETTE["paper" if hollow else role][0],
            markeredgecolor=PALETTE[role][0],
            markeredgewidth=1.6 if shape == "cross" else 1.0,
            zorder=4,
        )
        if axes is None:
            self.add(mark, tip)
        else:
            axes.add_artist(mark).set_clip_on(False)
            self._tip(mark, tip)

    def _tip(self, drawn: Artist, words: str) -> None:
        if words:
            name = f"tip{len(self.tips)}"
            drawn.set_gid(name)
            self.tips[name] = clean_text(words)

    def key(self, entries: Sequence[Entry]) -> None:
        """What marks and colours mean, in as many lines as they need."""
        x = 0.0
        for entry in entries:
            width = 15 + text_width(entry.words, SMALL)
            if x and x + width > WIDTH:
                x, self.y = 0.0, self.y + 12
            self._sample(entry, x, self.y + 4)
            self.text(x + 14, self.y + 4, entry.words, role="muted", size=SMALL)
            x += width + 12
        self.y += 14

    def _sample(self, entry: Entry, x: float, y: float) -> None:
        if entry.shape == "block":
            self.block(x, y - 3.5, 10, 7, entry.role)
        elif entry.shape == "bar":
            self.line([x + 5, x + 5], [y - 5, y + 5], entry.role, width=1.8)
        elif entry.shape in ("line", "dash"):
            self.line([x, x + 11], [y, y], entry.role, width=1.3, dash=entry.shape == "dash")
        else:
            self.mark(x + 5, y, entry.shape, entry.role, hollow=entry.hollow)


def x_axis(axes: Axes, words: str, write: Callable[[float], str], *, about: int = 5, grid: bool = True) -> None:
    """Round ticks below a chart, with faint lines through it, and what the axis is."""
    axes.xaxis.set_major_locator(MaxNLocator(about, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    axes.set_xlabel(words, fontsize=SMALL, color=PALETTE["muted"][0], labelpad=2)
    if grid:
        axes.grid(axis="x", color=PALETTE["grid"][0], linewidth=0.7)
        axes.set_axisbelow(True)


def note(title: str, words: str) -> Sheet:
    """A figure that says why there is nothing to draw."""
    sheet = Sheet(title)
    sheet.text(0, sheet.y + 6, words, role="muted", size=SMALL)
    sheet.y += 14
    return sheet.finish()


def fitted(words: str, room: float, size: float = TEXT, *, bold: bool = False) -> str:
    """The words on one line, shortened with an ellipsis when they are wider than ``room`` points."""
    words = words.replace("\n", " ")
    if text_width(words, size, bold=bold) <= room:
        return words
    kept, over = 0, len(words)
    while over - kept > 1:
        middle = (kept + over) // 2
        fits = text_width(words[:middle] + "…", size, bold=bold) <= room
        kept, over = (middle, over) if fits else (kept, middle)
    return words[:kept].rstrip() + "…"


@lru_cache(maxsize=4096)
def text_width(words: str, size: float, *, bold: bool = False) -> float:
    """Width of a line of text in points, as the PNG and the PDF draw it; a browser's font is narrower."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size)
    return float(TextToPath().get_text_width_height_descent(words, font, ismath=False)[0])
