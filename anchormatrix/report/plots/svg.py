"""A small drawing surface that makes SVG: themed by roles, escaped, the same bytes for the same calls.

Charts are drawn by hand rather than by a plotting library, because one picture must work inline (taking the page's
colours), alone in a file (bringing light and dark with it), in programs that know no CSS variables (every shape also
carries its light colour), and on paper; and because loading a plotting library costs more than the whole report.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from anchormatrix.report.source import clean_text

WIDTH = 1040.0
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
# Glyph widths of the usual interface fonts in em, on the wide side.
_GLYPHS = dict.fromkeys("iljtfrI.,:;'|!() ·-", 0.36)
_GLYPHS |= dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ±−÷×→", 0.72) | dict.fromkeys("mwMW@%…", 1.0)
_GLYPH = 0.585

# role: (light, dark). Hues after Okabe and Ito, darkened or lightened until they read on either paper.
PALETTE: dict[str, tuple[str, str]] = {
    "ink": ("#1c2630", "#e7ecf1"),
    "muted": ("#586572", "#9dabb8"),
    "grid": ("#d9dfe5", "#36414c"),
    "paper": ("#ffffff", "#12171c"),
    "panel": ("#f4f6f8", "#1b222a"),
    "few": ("#0072b2", "#5cb8ec"),
    "anchor": ("#c25f00", "#f5a742"),
    "good": ("#00785a", "#37c99d"),
    "bad": ("#b3261e", "#ff8f7d"),
    "band": ("#d3ece4", "#173c33"),
    "compute": ("#2f6fa7", "#4f97d4"),
    "exposed": ("#d55e00", "#f28a4b"),
    "hidden": ("#8fc7ea", "#2f6385"),
    "free": ("#9aa3ac", "#66717c"),
    "bubble": ("#b06a94", "#cc79a7"),
    "released": ("#e69f00", "#e69f00"),
    "waiting": ("#cdbb1d", "#f0e442"),
    "fast": ("#00785a", "#37c99d"),
    "slow": ("#8b959f", "#7a8692"),
}


def theme_css() -> str:
    """CSS that colours every drawing: variables for light and dark, and one class per role for fill and stroke."""
    light = "".join(f"--{role}:{pair[0]};" for role, pair in PALETTE.items())
    dark = "".join(f"--{role}:{pair[1]};" for role, pair in PALETTE.items())
    roles = "".join(f".f-{role}{{fill:var(--{role})}}.s-{role}{{stroke:var(--{role})}}" for role in PALETTE)
    return (
        f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}@media print{{:root{{{light}}}}}{roles}"
    )


@dataclass
class Drawing:
    """One picture under construction, ``WIDTH`` units wide and ``height`` high."""

    title: str
    height: float = 0.0
    parts: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, role: str, *, radius: float = 0, tip: str = ""
    ) -> None:
        """A filled rectangle; ``tip`` is shown when the pointer rests on it."""
        corner = f' rx="{_n(radius)}"' if radius else ""
        self._shape(
            f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(height)}"{corner} {_fill(role)}', tip
        )

    def frame(
        self, x: float, y: float, width: float, height: float, role: str, *, radius: float = 0, dash: str = ""
    ) -> None:
        """An outlined rectangle."""
        self._shape(
            f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}" fill="none" '
            f'{_stroke(role)} stroke-width="1.3"{_dash(dash)}'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, role: str, *, width: float = 1, dash: str = "") -> None:
        """A straight line."""
        ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        self._shape(f'line {ends} {_stroke(role)} stroke-width="{_n(width)}"{_dash(dash)}')

    def arc(
        self,
        x1: float,
        x2: float,
        y: float,
        rise: float,
        role: str,
        *,
        width: float = 1.5,
        dash: str = "",
        tip: str = "",
    ) -> None:
        """An arch between two points of one height."""
        self._shape(
            f'path d="M{_n(x1)} {_n(y)}C{_n(x1)} {_n(y - rise)} {_n(x2)} {_n(y - rise)} {_n(x2)} {_n(y)}" fill="none" '
            f'{_stroke(role)} stroke-width="{_n(width)}"{_dash(dash)}',
            tip,
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        role: str = "ink",
        anchor: str = "start",
        size: float = 12.5,
        bold: bool = False,
    ) -> None:
        """Text with its baseline at ``y``; ``anchor`` is start, middle or end."""
        align = f' text-anchor="{anchor}"' if anchor != "start" else ""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" {_fill(role)}{align}{weight}>{_shown(words)}</text>'
        )

    def marker(
        self, x: float, y: float, shape: str, role: str, *, hollow: bool = False, size: float = 4.6, tip: str = ""
    ) -> None:
        """A mark: ``circle``, ``diamond`` or ``cross``; hollow ones show the paper inside."""
        inside = "paper" if hollow else role
        paint = (
            f'class="f-{inside} s-{role}" fill="{PALETTE[inside][0]}" stroke="{PALETTE[role][0]}" stroke-width="1.6"'
        )
        if shape == "circle":
            self._shape(f'circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(size)}" {paint}', tip)
        elif shape == "diamond":
            reach = size * 1.25
            points = ((x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y))
            self._shape(f'polygon points="{" ".join(f"{_n(a)},{_n(b)}" for a, b in points)}" {paint}', tip)
        else:
            left, right, top, low = _n(x - size), _n(x + size), _n(y - size), _n(y + size)
            path = f"M{left} {top}L{right} {low}M{left} {low}L{right} {top}"
            self._shape(f'path d="{path}" fill="none" {_stroke(role)} stroke-width="2.2"', tip)

    def legend(self, y: float, entries: Sequence[tuple[str, str, str, bool]], *, x: float = 0) -> None:
        """A row of (shape, role, words, hollow); the shape ``block`` is a filled rectangle, ``tick`` a bar."""
        for shape, role, words, hollow in entries:
            if shape == "block":
                self.rect(x, y - 9, 15, 10, role, radius=2)
            elif shape == "tick":
                self.line(x + 7, y - 11, x + 7, y + 3, role, width=2.6)
            elif shape in ("line", "dash"):
                self.line(x, y - 4, x + 15, y - 4, role, width=2, dash="5 4" if shape == "dash" else "")
            else:
                self.marker(x + 7, y - 4, shape, role, hollow=hollow)
            self.text(x + 21, y, words, role="muted", size=12)
            x += 21 + text_width(words, 12) + 22

    def _shape(self, body: str, tip: str = "") -> None:
        tag = body.split(" ", 1)[0]
        self.parts.append(f"<{body}><title>{_shown(tip)}</title></{tag}>" if tip else f"<{body}/>")

    def heading(self) -> None:
        """The title, at the top."""
        self.text(0, 15, fitted(self.title, WIDTH * 0.95, 13.5), bold=True, size=13.5)

    def inline(self) -> str:
        """The picture for use inside a page that has :func:`theme_css`."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(WIDTH)} {_n(self.height)}" role="img" '
            f'aria-label="{_shown(self.title)}">{"".join(self.parts)}</svg>'
        )


def standalone(title: str, drawings: Sequence[Drawing]) -> str:
    """One SVG file with the drawings below one another; it brings paper, font, light and dark of its own."""
    margin, y, groups = 24.0, 24.0, []
    for drawing in drawings:
        groups.append(f'<g transform="translate({_n(margin)} {_n(y)})">{"".join(drawing.parts)}</g>')
        y += drawing.height + 28
    width, height = _n(WIDTH + 2 * margin), _n(y - 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" role="img"><title>{_shown(title)}</title><style>{theme_css()}</style>'
        f'<rect width="100%" height="100%" {_fill("paper")}/>{"".join(groups)}</svg>\n'
    )


def note(title: str, words: str) -> Drawing:
    """A picture that says why there is no picture."""
    drawing = Drawing(title, height=44)
    drawing.heading()
    drawing.text(0, 36, fitted(words, WIDTH), role="muted")
    return drawing


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round values inside ``low`` … ``high``, about as many as asked for."""
    raw = (high - low) / max(about, 1)
    if raw <= 0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(
        (unit * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (unit * factor) <= about + 1 + 1e-9),
        unit * 10,
    )
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def text_width(words: str, size: float) -> float:
    """Estimated width of a text."""
    return size * sum(_GLYPHS.get(char, _GLYPH) for char in words)


def fitted(words: str, width: float, size: float = 12.5) -> str:
    """The text, shortened with an ellipsis when it is wider than ``width``."""
    words = words.replace("\n", " ")
    if text_width(words, size) <= width:
        return words
    widths = accumulate((text_width(char, size) for char in words), initial=size)  # the ellipsis is one em wide
    kept = sum(used <= width for used in widths) - 1
    return words[: max(kept, 0)].rstrip() + "…"


def _fill(role: str) -> str:
    return f'class="f-{role}" fill="{PALETTE[role][0]}"'


def _stroke(role: str) -> str:
    return f'class="s-{role}" stroke="{PALETTE[role][0]}"'


def _dash(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _shown(text: str) -> str:
    """Text from outside as SVG shows it."""
    return html.escape(clean_text(text))
