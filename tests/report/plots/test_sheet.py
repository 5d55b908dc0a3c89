"""The sheet: words fitted to their room, keys that wrap, tips, and the place that a chart gets."""

from __future__ import annotations

import pytest

from anchormatrix.report.plots.output import inline
from anchormatrix.report.plots.sheet import WIDTH, Entry, Sheet, fitted, note, style, text_width


def test_words_are_shortened_to_their_room() -> None:
    with style():
        assert fitted("short", 80) == "short"
        short = fitted("a very long name that cannot fit", 80)
        assert short.startswith("a very") and short.endswith("…")
        assert text_width(short, 8.5) <= 80


@pytest.mark.parametrize("words", ["$x^2$", "W" * 400, "中文 \N{GRINNING FACE}", ""])
def test_any_words_can_be_drawn_and_none_are_a_formula(words: str) -> None:
    with style():
        svg = inline("note", note("A title", words))
    assert (words or "A title")[:5] in svg


def test_a_key_takes_as_many_lines_as_it_needs() -> None:
    with style():
        one, many = Sheet("one"), Sheet("many")
        one.key([Entry("circle", "few", "few")])
        many.key([Entry("circle", "few", "an entry that takes some room")] * 6)
    assert many.y >= one.y + 12


def test_a_chart_lies_where_its_box_says() -> None:
    with style():
        sheet = Sheet("chart")
        axes = sheet.chart((100, 50, 300, 90), (0, 1))
        sheet.y = 120
        sheet.finish()
    left, bottom, width, height = axes.get_position().bounds
    assert (left * 480, width * 480) == pytest.approx((106, 200))
    assert (bottom * 132, height * 132) == pytest.approx((132 - 6 - 90, 40))
    assert axes.get_ylim() == (90, 50)
    assert tuple(72 * sheet.figure.get_size_inches()) == pytest.approx((WIDTH + 12, 132))


def test_a_tip_is_the_title_of_what_is_drawn() -> None:
    with style():
        sheet = Sheet("tips")
        sheet.block(0, 20, 10, 10, "few", tip='"<i>" & more')
        svg = inline("tips", sheet.finish())
    assert '<title>"&lt;i&gt;" &amp; more</title>' in svg
