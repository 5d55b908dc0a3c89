"""What a captured request leaves to tell: whether the only step of its trace is one step or all of it."""

from __future__ import annotations

import pytest

from anchormatrix.captures.cutting.request import Request


@pytest.mark.parametrize(
    ("iterations", "diffuse_s", "span_s", "a_step"),
    [
        (4, 2.0, 0.6, True),
        (4, 2.0, 2.4, False),  # with text encoder and decoder
        (4, 2.0, 1.2, None),
        (2, 0.6, 0.5, True),  # stretched by the profiler, beside a step that was not
        (2, 0.6, 0.7, False),
        (1, 0.5, 0.6, True),
        (1, 0.5, 1.0, False),
        (1, None, 9.0, True),
        (4, None, 9.0, False),
    ],
)
def test_the_time_of_a_step_or_of_the_request(iterations, diffuse_s, span_s, a_step):
    assert Request(iterations, diffuse_s=diffuse_s).holds_a_step(span_s) is a_step


def test_the_expected_number_in_words():
    assert Request(4).expected == "4 steps were expected"
    assert Request(4, branches=2).expected == "4 steps × 2 branches = 8 were expected"
