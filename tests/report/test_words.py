"""Counts and lists in words."""

from __future__ import annotations

from anchormatrix.report.words import count_of, group, listed, minute


def test_one_card_is_a_card_and_more_are_cards() -> None:
    assert [count_of(size) for size in (1, 2, 16)] == ["1 card", "2 cards", "16 cards"]


def test_lists_end_with_and() -> None:
    assert [listed(words) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


def test_groups_and_times_are_short() -> None:
    assert group((0, 1, 2, 3)) == "0–3"
    assert minute("2026-03-01T02:03:04+00:00") == "2026-03-01 02:03"
    assert minute("never") == "never"
