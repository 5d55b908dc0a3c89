"""The report's facts as Markdown, to paste into a ticket: the same sentences and tables as the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from anchormatrix.report.html import rendered
from anchormatrix.report.source import clean_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]|#~])")
_BLANK_LINES = re.compile(r"\n{3,}")


def evidence(facts: Mapping[str, Any]) -> str:
    """The Markdown text of :func:`anchormatrix.report.facts.facts`."""
    text = rendered("evidence.md.j2", _plain, **facts)
    return _BLANK_LINES.sub("\n\n", text).strip() + "\n"


def _plain(value: Any) -> Any:
    """Text from outside as Markdown that shows exactly this text: no markup, no HTML, one line."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = clean_text(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Markup(_SPECIAL.sub(r"\\\1", text).replace("://", ":&#47;/").replace("\n", "<br>"))
