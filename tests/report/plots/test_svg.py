"""The drawing surface: round ticks, escaped text, markers, and topologies of every shape drawn inside the picture."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_results import settings, write_results

from anchormatrix.records.host import Topology
from anchormatrix.report.load import load_report
from anchormatrix.report.plots.svg import WIDTH, Drawing, fitted, standalone, text_width, ticks
from anchormatrix.report.plots.topology import host_picture
from anchormatrix.report.source import Part


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 3, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        (-8, 8, [-7.5, -5, -2.5, 0, 2.5, 5, 7.5]),
        (0.98, 1.12, [0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6))
def test_ticks_never_leave_the_range_and_are_few(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert len(found) <= 8
    assert all(low - 1e-6 * span <= value <= low + span + 1e-6 * span for value in found)


def test_text_is_escaped_and_shortened_to_its_room() -> None:
    drawing = Drawing("a < b", height=10)
    drawing.text(0, 5, "<b>&")
    drawing.rect(0, 0, 5, 5, "ink", tip='"<i>')
    root = ElementTree.fromstring(standalone(drawing.title, [drawing]))
    assert [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")] == ["<b>&"]
    short = fitted("a very long name that cannot fit", 80)
    assert short.endswith("…")
    assert text_width(short, 12.5) <= 80


def _ring(size: int) -> Topology:
    near = {(a, (a + 1) % size) for a in range(size)}
    links = [
        ["X" if a == b else "NV1" if (a, b) in near or (b, a) in near else "PHB" for b in range(size)]
        for a in range(size)
    ]
    return Topology(tuple(range(size)), tuple(map(tuple, links)))


def _plain(size: int, link: str) -> Topology:
    return Topology(
        tuple(range(3, 3 + size)), tuple(tuple("X" if a == b else link for b in range(size)) for a in range(size))
    )


@pytest.mark.parametrize(
    "topology", [_plain(1, "UB"), _plain(2, "SIO"), _plain(8, "PIX"), _plain(16, "HCCS"), _ring(8), _plain(8, "NV18")]
)
def test_every_topology_is_drawn_inside_the_picture(tmp_path: Path, topology: Topology) -> None:
    write_results(tmp_path)
    report = replace(load_report(settings(), tmp_path, tmp_path), topology=Part(topology))
    drawing = host_picture(report)
    text = drawing.inline()
    ElementTree.fromstring(text)
    for found in re.findall(r'\b(?:x|x1|x2|cx)="(-?[\d.]+)"', text):
        assert 0 <= float(found) <= WIDTH
    for found in re.findall(r'\b(?:y|y1|y2|cy)="(-?[\d.]+)"', text):
        assert 0 <= float(found) <= drawing.height
    for card in topology.cards:
        assert f">{card}</text>" in text
