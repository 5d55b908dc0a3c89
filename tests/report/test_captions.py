"""Sentences under the pictures."""

from __future__ import annotations

import pytest

from anchormatrix.report.captions import what_differs

NONE = {"computing": 0.0, "exposed": 0.0, "host": 0.0, "free": 0.0, "bubble": 0.0}


@pytest.mark.parametrize(
    ("stage", "parts", "text"),
    [
        (712.0, {"computing": -13.0, "host": 587.0, "exposed": 103.0}, "most of it host overhead (+587.0 ms)"),
        (
            700.0,
            {"host": 450.0, "exposed": 250.0},
            "most of it host overhead (+450.0 ms) and exposed communication (+250.0 ms)",
        ),
        (
            -300.0,
            {"computing": -140.0, "exposed": -100.0, "free": -60.0},
            "the largest part of it computing (-140.0 ms) and exposed communication (-100.0 ms)",
        ),
    ],
)
def test_a_difference_names_the_parts_that_make_it(stage, parts, text):
    assert what_differs(stage, NONE | parts) == text
