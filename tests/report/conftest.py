"""Pages without pictures, for tests of what the report says: drawing costs more than all the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchormatrix.report import build
from anchormatrix.report.model import Report
from anchormatrix.report.plots import figures
from anchormatrix.report.plots.figures import SUFFIXES, TITLES, Figure
from anchormatrix.report.source import clean_text
from anchormatrix.store.files import write_bytes


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are read but not drawn: their files are empty."""

    def readings_alone(report: Report, folder: Path) -> dict[str, Figure]:
        found = {}
        for name, parts in figures._contents(report).items():
            for suffix in SUFFIXES:
                write_bytes(folder / f"{name}.{suffix}", b"")
            read = tuple(("<svg></svg>", clean_text(reading)) for _, reading in parts)
            found[name] = Figure(name, TITLES[name], read)
        return found

    monkeypatch.setattr(build, "write_figures", readings_alone)
