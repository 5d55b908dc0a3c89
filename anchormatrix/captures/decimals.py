"""Exact times: microseconds written as text become nanoseconds as 64-bit integers.

A time stamp such as ``1736413971558972.912`` needs 61 bits; a float64 has 53, so its step there is 0.25 µs and two
kernels may swap places. Nothing in here goes through a float.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = r"^(?P<sign>[+-]?)(?P<whole>\d{1,16})(?:\.(?P<fraction>\d*))?$"
_GROUPED = r"^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$"
# 21 digits hold any 64-bit number of nanoseconds, and a few more so that an overflow is seen instead of wrapped.
_DECIMAL = pa.decimal128(21, 3)
_LEAST, _MOST = 5, 24  # characters of a plain number: 0.000, and 16 digits with blanks
_BLANKS = np.frombuffer(b" \t", np.uint8)

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def nanoseconds(microseconds: pa.Array | pa.ChunkedArray) -> tuple[Int64s, Bools]:
    """Return ``(ns, valid)`` for a text column of microseconds; ``ns`` is 0 where the text is not a number.

    Accepts blanks and tabs around the number and thousands separators. More than three decimals are rounded to the
    nearest nanosecond (half up). An exponent (``1.7e+15``) is not valid: whoever wrote it has already lost digits.
    """
    column = microseconds.combine_chunks() if isinstance(microseconds, pa.ChunkedArray) else microseconds
    if (plain := _of_equal_lengths(column)) is not None:
        return plain, np.ones(len(plain), np.bool_)
    text = pc.utf8_trim_whitespace(column)
    if not len(text):
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    if not pc.any(pc.match_substring(text, "e", ignore_case=True)).as_py():
        try:
            return _from_decimals(text.cast(_DECIMAL))
        except pa.ArrowInvalid:
            pass  # some field is odd: separators, many decimals, or no number at all
    return _one_by_one(text)


def _of_equal_lengths(column: pa.Array) -> Int64s | None:
    """Return the ns of a column of plain numbers with three decimals (``1736413971558972.912``, blanks behind them
    allowed), digit by digit for each length of text; None when any text is something else."""
    if not len(column) or column.null_count or column.type != pa.string():
        return None
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    lengths = np.diff(ends)
    if not _LEAST <= lengths.min() <= lengths.max() <= _MOST:
        return None
    present = np.flatnonzero(np.bincount(lengths)).tolist()
    if len(present) == 1:
        return _digits(text[ends[0] : ends[-1]].reshape(-1, present[0]))
    found = np.empty(len(column), np.int64)
    for length in present:
        rows = np.flatnonzero(lengths == length)
        numbers = _digits(text[ends[:-1][rows][:, None] + np.arange(length)])
        if numbers is None:
            return None
        found[rows] = numbers
    return found


def _digits(block: npt.NDArray[np.uint8]) -> Int64s | None:
    while block.shape[1] > _LEAST - 1 and np.isin(block[0, -1], _BLANKS) and (block[:, -1] == block[0, -1]).all():
        block = block[:, :-1]
    point = block.shape[1] - 4
    if point < 1 or point > 16 or not (block[:, point] == ord(".")).all():
        return None
    digits = block - np.uint8(ord("0"))
    digits[:, point] = 0
    if (digits > 9).any():
        return None
    weights = np.asarray([10 ** (point + 2 - place) for place in range(point)] + [0, 100, 10, 1], np.uint64)
    number = digits.astype(np.uint64) @ weights
    return number.astype(np.int64) if int(number.max()) <= np.iinfo(np.int64).max else None


def _from_decimals(decimals: pa.Array) -> tuple[Int64s, Bools]:
    # A decimal128 is a 128-bit little-endian integer scaled by 10^3: its low word is the number of nanoseconds.
    words = np.frombuffer(decimals.buffers()[1], dtype=np.int64)[2 * decimals.offset :].reshape(-1, 2)[: len(decimals)]
    fits = words[:, 1] == words[:, 0] >> 63
    valid = fits & np.asarray(decimals.is_valid())
    return np.where(valid, words[:, 0], 0), valid


def _one_by_one(text: pa.Array) -> tuple[Int64s, Bools]:
    grouped = pc.fill_null(pc.match_substring_regex(text, _GROUPED), False)
    if pc.any(grouped).as_py():
        text = pc.if_else(grouped, pc.replace_substring(text, ",", ""), text)
    parts = pc.extract_regex(text, _PLAIN)
    valid = np.asarray(parts.is_valid())
    whole = _integers(pc.struct_field(parts, "whole"), valid)
    fraction = pc.utf8_rpad(pc.fill_null(pc.struct_field(parts, "fraction"), ""), width=4, padding="0")
    thousandths = _integers(pc.utf8_slice_codeunits(fraction, 0, 3), valid)
    rounding = _integers(pc.utf8_slice_codeunits(fraction, 3, 4), valid) >= 5
    sign = np.where(np.asarray(pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False)), -1, 1)
    # Sixteen digits of µs may exceed 64 bits of ns; such a time stamp is no time at all.
    valid = valid & (whole <= np.iinfo(np.int64).max // 1000 - 1)
    return np.where(valid, sign * (np.where(valid, whole, 0) * 1000 + thousandths + rounding), 0), valid


def _integers(digits: pa.Array, valid: Bools) -> Int64s:
    filled = pc.if_else(pa.array(valid), digits, "0")
    return np.asarray(filled.cast(pa.int64()), dtype=np.int64)
