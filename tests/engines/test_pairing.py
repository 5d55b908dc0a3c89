"""Pairs of what was asked and what a log tells: in order, and unsure where the steps leave a choice."""

from __future__ import annotations

import pytest

from anchormatrix.engines.pairing import ambiguous, paired


@pytest.mark.parametrize(
    ("asked", "told", "pairs", "unsure"),
    [
        ((4, 10, 4, 10), (4, 10, 4, 10), (0, 1, 2, 3), set()),
        ((4, 10, 4, 20), (4, 4, 20), (0, None, 1, 2), set()),
        ((4, 4, 10), (4, 10), (0, None, 1), {0, 1}),
        ((4, 10), (4, 10, 4, 10), (0, 1), {0, 1}),
        ((4, 10, 4), (4, 10, 4, 20), (0, 1, 2), set()),
        ((4,), (), (None,), set()),
        ((), (4,), (), set()),
    ],
)
def test_pairs(asked: tuple[int, ...], told: tuple[int, ...], pairs: tuple[int | None, ...], unsure: set[int]) -> None:
    assert paired(asked, told) == pairs
    assert ambiguous(asked, told) == unsure
