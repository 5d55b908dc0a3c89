"""The picture of the host: topologies of every shape, drawn inside the picture, with every card and its state."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_results import settings, write_results

from anchormatrix.records.host import Topology
from anchormatrix.report.load import load_report
from anchormatrix.report.plots.output import inline
from anchormatrix.report.plots.sheet import style
from anchormatrix.report.plots.topology import host_picture
from anchormatrix.report.source import Part


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
    with style():
        text = inline("topology", host_picture(report))
    left, top, width, height = map(float, re.findall(r'viewBox="([^"]+)"', text)[0].split())
    for x, y in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", re.sub(r"<defs>.*?</defs>", "", text)):
        assert left - 6 <= float(x) <= left + width + 6
        assert top <= float(y) <= top + height
    for card in topology.cards:
        assert f">{card}</text>" in text


def test_cards_in_the_residue_state_are_marked_though_they_say_ok(tmp_path: Path) -> None:
    write_results(tmp_path, reject_first=4, sizes=(4,))
    with style():
        text = inline("topology", host_picture(load_report(settings(), tmp_path, tmp_path)))
    assert text.count(">residue</text>") == 4
