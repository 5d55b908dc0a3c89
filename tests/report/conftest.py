"""Pages without pictures, for tests of what the report says: drawing costs more than all the rest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from anchormatrix.report.plots import output
from anchormatrix.report.plots.figures import SUFFIXES
from anchormatrix.report.plots.sheet import Sheet


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not drawn: their files are empty."""

    def nothing(name: str, title: str, text: str, sheets: Iterable[Sheet]) -> output.Drawn:
        return output.Drawn(tuple("<svg></svg>" for _ in sheets), dict.fromkeys(SUFFIXES, b""))

    monkeypatch.setattr(output, "drawn", nothing)
