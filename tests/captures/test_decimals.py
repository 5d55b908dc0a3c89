"""Microseconds as text become nanoseconds exactly."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchormatrix.captures.decimals import nanoseconds


def one(text: str) -> int | None:
    ns, valid = nanoseconds(pa.array([text], pa.string()))
    return int(ns[0]) if valid[0] else None


def test_no_time_stamp_goes_through_a_float64():
    text = "1736413971558972.912"
    assert one(text) == 1_736_413_971_558_972_912
    assert int(float(text) * 1000) != 1_736_413_971_558_972_912  # what a float makes of it
    assert float("1736413971558972.912") == float("1736413971558973.000")  # its step there is 0.25 µs


def test_neighbouring_nanoseconds_stay_apart():
    texts = [f"1736413971558972.{k:03d}" for k in range(1000)]
    ns, valid = nanoseconds(pa.array(texts, pa.string()))
    assert valid.all()
    assert np.diff(ns).tolist() == [1] * 999


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1736413971558972.912\t", 1_736_413_971_558_972_912),  # the trailing tab of quoted fields
        (" 607.98 ", 607_980),
        ("0", 0),
        ("5.", 5000),
        ("3.2", 3200),
        ("-3.2", -3200),
        ("80309.68717187493", 80_309_687),
        ("0.0005", 1),  # half up
        ("1,736,413,971,558,972.912", 1_736_413_971_558_972_912),
        ("12,345.5", 12_345_500),
    ],
)
def test_the_ways_tools_write_a_number(text, ns):
    assert one(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "N/A", "1.7e+15", "1736413971558972.912E0", "12,34.5", "1.2.3", "--1", "0x10", "nan", "9" * 30, "9" * 16],
)
def test_what_is_no_exact_number_is_not_valid(text):
    assert one(text) is None


def test_one_bad_field_leaves_its_neighbours_exact():
    ns, valid = nanoseconds(pa.chunked_array([["1736413971558972.912"], ["N/A", "1.0005", "2,000.5"]]))
    assert valid.tolist() == [True, False, True, True]
    assert ns.tolist() == [1_736_413_971_558_972_912, 0, 1001, 2_000_500]


def test_an_empty_column_is_empty():
    ns, valid = nanoseconds(pa.array([], pa.string()))
    assert (len(ns), len(valid)) == (0, 0)


@given(st.decimals(min_value=0, max_value=Decimal("9e15"), places=3, allow_nan=False), st.booleans())
def test_any_number_with_three_decimals_is_exact(value, odd_neighbour):
    text = [f"{value:f}"] + (["N/A"] if odd_neighbour else [])  # the slow path must agree with the fast one
    ns, valid = nanoseconds(pa.array(text, pa.string()))
    assert valid[0]
    assert int(ns[0]) == int(value * 1000)


@given(st.decimals(min_value=0, max_value=Decimal("9e12"), places=7, allow_nan=False))
def test_more_decimals_are_rounded_to_the_nearest_nanosecond(value):
    tenths = (value * 1000).quantize(Decimal("0.1"), rounding="ROUND_DOWN")
    assert one(f"{value:f}") == int(tenths.quantize(Decimal(1), rounding=ROUND_HALF_UP))
