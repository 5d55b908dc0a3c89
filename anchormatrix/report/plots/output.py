"""Files of a figure: SVG that takes the reader's light or dark setting, PNG for slides, PDF for papers.

The same figure gives the same bytes: no date, no name that depends on the process.
"""

from __future__ import annotations

import gc
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from anchormatrix.report.plots.palette import FONT, PALETTE, theme_css
from anchormatrix.report.plots.sheet import MARGIN, Sheet

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_DPI = 200
_COMPRESSION = 3  # two thirds of the time of the usual 6, files a fiftieth larger
_ROLES = {light: role for role, (light, _) in PALETTE.items()}
_REFERENCE = re.compile(r"#([\w.-]+)")
_NOT_DRAWN = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _LINK)


@dataclass(frozen=True)
class Drawn:
    """A figure's parts as SVG elements for a page, and as the bytes of its three files by suffix."""

    inline: tuple[str, ...]
    files: Mapping[str, bytes]


@contextmanager
def collecting_figures() -> Iterator[None]:
    """Garbage collections inside visit the figures alone: what was loaded before, mostly matplotlib, stays."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def drawn(name: str, title: str, text: str, sheets: Iterable[Sheet]) -> Drawn:
    """Draw the parts one at a time: below one another in SVG and PNG, a page each in PDF. ``text`` describes them."""
    parts, pixels, pdf = [], [], io.BytesIO()
    with PdfPages(pdf, metadata={"Title": title, "Subject": text, "CreationDate": None}) as pages:
        for number, sheet in enumerate(sheets):
            parts.append(_themed(sheet, f"{name}-{number}-"))
            sheet.figure.savefig(pages, format="pdf")
            canvas = FigureCanvasAgg(sheet.figure)
            sheet.figure.set_dpi(_DPI)
            canvas.draw()
            pixels.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            sheet.figure.clear()
    gc.collect()  # figures are circles of references, which would pile up until long after the last
    files = {
        "svg": _file(title, text, parts).encode(),
        "png": _png(title, text, pixels),
        "pdf": pdf.getvalue(),
    }
    return Drawn(tuple(_for_page(part) for part in parts), files)


def inline(name: str, sheet: Sheet) -> str:
    """A figure as an SVG element for a page that has the colours of :func:`theme_css`."""
    return _for_page(_themed(sheet, f"{name}-"))


def _for_page(part: ElementTree.Element) -> str:
    """A part as text, without the margin that a picture alone has."""
    _, _, width, height = map(float, part.attrib["viewBox"].split())
    box = {"viewBox": f"{MARGIN:g} 0 {width - 2 * MARGIN:g} {height:g}"}
    element = ElementTree.Element(part.tag, {**part.attrib, **box})
    element.extend(part)
    return ElementTree.tostring(element, encoding="unicode")


def _themed(sheet: Sheet, prefix: str) -> ElementTree.Element:
    """A figure as an SVG element whose colours are classes, and whose ids start with ``prefix``."""
    buffer = io.BytesIO()
    sheet.figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in _NOT_DRAWN]:
            parent.remove(child)
    used = {found for element in root.iter() for found in _references(element)}
    for element in list(root.iter()):
        _rework(element, prefix, used, sheet.tips)
    for name in ("width", "height", "version"):
        root.attrib.pop(name)
    root.attrib |= {"role": "img", "aria-label": sheet.title, "stroke-linejoin": "round"}
    return root


def _references(element: ElementTree.Element) -> list[str]:
    pointing = (element.get(f"{{{_LINK}}}href", ""), element.get("clip-path", ""))
    return [name for value in pointing for name in _REFERENCE.findall(value)]


def _rework(element: ElementTree.Element, prefix: str, used: set[str], tips: Mapping[str, str]) -> None:
    name = element.attrib.pop("id", "")
    if name in used:
        element.set("id", prefix + name)
    for attribute in (f"{{{_LINK}}}href", "clip-path"):
        if attribute in element.attrib:
            element.set(attribute, _REFERENCE.sub(rf"#{prefix}\1", element.attrib[attribute]))
    if "style" in element.attrib:
        _colour_by_class(element)
    if element.get("transform", "").startswith("rotate(-0 "):
        element.attrib.pop("transform")
    if "d" in element.attrib:
        element.set("d", " ".join(element.attrib["d"].split()))
    if element.tag != f"{{{_SVG}}}text":
        element.text = None
    element.tail = None
    if name in tips:
        tip = ElementTree.Element(f"{{{_SVG}}}title")
        tip.text = tips[name]
        element.insert(0, tip)


def _colour_by_class(element: ElementTree.Element) -> None:
    """Move colours of roles from the style, which no CSS overrides, into attributes and classes."""
    kept, classes = [], []
    for rule in element.attrib.pop("style").split("; "):
        key, _, value = rule.partition(": ")
        if key in ("fill", "stroke"):
            element.set(key, value)
            if value in _ROLES:
                classes.append(f"{key[0]}-{_ROLES[value]}")
        elif key != "font-family":
            kept.append(rule)
    if kept:
        element.set("style", "; ".join(kept))
    if classes:
        element.set("class", " ".join(classes))


def _file(title: str, text: str, parts: list[ElementTree.Element]) -> str:
    """One SVG file with the parts below one another; it brings paper, font, light and dark of its own."""
    root = ElementTree.Element(f"{{{_SVG}}}svg", {"font-family": FONT, "role": "img", "stroke-linejoin": "round"})
    for tag, words in (("title", title), ("desc", text), ("style", theme_css())):
        ElementTree.SubElement(root, f"{{{_SVG}}}{tag}").text = words
    width = height = 0.0
    for part in parts:
        _, _, wide, high = map(float, part.attrib["viewBox"].split())
        group = ElementTree.SubElement(root, f"{{{_SVG}}}g", {"transform": f"translate(0 {height:g})"})
        group.extend(part)
        width, height = max(width, wide), height + high
    root.attrib |= {"width": f"{width:g}pt", "height": f"{height:g}pt", "viewBox": f"0 0 {width:g} {height:g}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _png(title: str, text: str, pixels: list[np.ndarray]) -> bytes:
    buffer, words = io.BytesIO(), PngInfo()
    for key, value in (("Title", title), ("Description", text)):
        words.add_text(key, value)
    image = Image.fromarray(np.concatenate(pixels))
    image.save(buffer, format="png", dpi=(_DPI, _DPI), pnginfo=words, compress_level=_COMPRESSION)
    return buffer.getvalue()
