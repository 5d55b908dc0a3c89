"""Pages made of templates: no scripts, nothing loaded from elsewhere, everything from outside escaped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from anchormatrix.report.plots.palette import theme_css
from anchormatrix.report.source import clean_text
from anchormatrix.report.words import count_of, minute

_FORM = re.compile(r"\btp\d+-usp\d+[\w+-]*")
_FIGURE = re.compile(r"(?<=\d) (?=(?:%|(?:s|ms|cards?|steps|windows)\b))|(?<=\br) (?==)|(?<=\br =) ")
_TEMPLATES = Path(__file__).parent / "templates"


def _harmless(value: Any) -> Any:
    """Whatever a page shows: text that came from outside as text that can be shown."""
    return clean_text(value) if type(value) is str else value


def rendered(template: str, harmless: Callable[[Any], Any] = _harmless, **values: Any) -> str:
    """A template of this package as text, with the style and colours that all pages share.

    Whatever it shows goes through ``harmless`` first.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["verbatim"] = Markup  # only for text that this package made and escaped itself
    environment.filters["harmless"] = harmless
    environment.filters["unbroken"] = unbroken
    environment.filters["minute"] = minute
    environment.filters["cards"] = count_of
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(theme=theme_css(), style=style, **values)


def unbroken(words: str) -> Markup:
    """Escaped text in which the names of forms, and figures and their units, are not broken over lines."""
    text = _FORM.sub(r'<span class="form">\g<0></span>', str(escape(clean_text(words))))
    return Markup(_FIGURE.sub("\N{NO-BREAK SPACE}", text))
