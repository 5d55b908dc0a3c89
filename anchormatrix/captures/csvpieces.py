"""A CSV file in pieces of whole lines, parsed beside each other, so that the file is never in memory as a whole."""

from __future__ import annotations

import gzip
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from anchormatrix.captures.decimals import nanoseconds

CHUNK = 1 << 22
_AT_ONCE = min(4, os.cpu_count() or 1)  # pieces that are parsed beside each other, each of which takes memory
_BREAK = ord("\n")
_ENCODED = pa.dictionary(pa.int32(), pa.string())


def open_binary(path: Path) -> BinaryIO:
    """Open a file, unpacking gzip by its name."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


class Parsed(NamedTuple):
    """Rows of a file or of a piece of it, the lines that are no row with their numbers, and how many lines it has."""

    table: pa.Table
    broken: list[tuple[int, str]]
    lines: int


def parse_pieces(path: Path, names: list[str], columns: Sequence[str], microseconds: Sequence[str]) -> Parsed:
    """Parse a file in pieces of whole lines, some at a time beside each other.

    A line break inside a quoted field may end a piece; then the lines do not add up.
    """
    options = pacsv.ConvertOptions(
        include_columns=list(columns),
        column_types={name: pa.string() if name in microseconds else _ENCODED for name in columns},
    )
    tables, broken, before = [], [], 0
    with open_binary(path) as stream, ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        running: deque[Future[Parsed]] = deque()
        for number, piece in enumerate(_pieces(stream)):
            if len(piece):
                running.append(pool.submit(_piece, piece, _unique(names), number == 0, options, microseconds))
            while running and (len(running) > _AT_ONCE or not len(piece)):
                one = running.popleft().result()
                tables.append(one.table)
                broken += [(before + line, text) for line, text in one.broken]
                before += one.lines
    pa.default_memory_pool().release_unused()  # what the pieces took is free, and nobody else may have it
    return Parsed(pa.concat_tables(tables or [empty_rows(columns, microseconds)]), broken, before)


def empty_rows(columns: Sequence[str], microseconds: Sequence[str]) -> pa.Table:
    types = [pa.int64() if name in microseconds else _ENCODED for name in columns]
    return pa.schema(list(zip(columns, types, strict=True))).empty_table()


def _pieces(stream: BinaryIO) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield whole lines, about ``CHUNK`` bytes at a time, and an empty piece at the end."""
    rest = b""
    while True:
        block = bytearray(len(rest) + CHUNK)
        block[: len(rest)] = rest
        size = len(rest) + stream.readinto(memoryview(block)[len(rest) :])  # type: ignore[attr-defined]
        end = block.rfind(b"\n", 0, size) + 1
        if size == len(rest):
            break
        if end:
            yield np.frombuffer(block, np.uint8)[:end]
            rest = bytes(memoryview(block)[end:size])
        else:
            yield np.frombuffer(bytes(memoryview(block)[:size]) + stream.readline(), np.uint8)
            rest = b""
    if rest:
        yield np.frombuffer(rest, np.uint8)
    yield np.empty(0, np.uint8)


def _piece(
    piece: npt.NDArray[np.uint8],
    names: list[str],
    first: bool,
    options: pacsv.ConvertOptions,
    microseconds: Sequence[str],
) -> Parsed:
    broken: list[tuple[int, str]] = []

    def skip(row: pacsv.InvalidRow) -> str:
        broken.append((row.number, row.text))
        return "skip"

    table = pacsv.read_csv(
        pa.BufferReader(pa.py_buffer(piece)),
        # One thread: rows keep their numbers, and pieces are read beside each other anyway.
        read_options=pacsv.ReadOptions(
            use_threads=False, block_size=len(piece) + 1, column_names=names, skip_rows=int(first)
        ),
        parse_options=pacsv.ParseOptions(invalid_row_handler=skip),
        convert_options=options,
    )
    for name in microseconds:
        ns, valid = nanoseconds(table[name])
        column = pa.array(ns) if valid.all() else pa.array(ns, mask=~valid)
        table = table.set_column(table.column_names.index(name), name, column)
    return Parsed(table, broken, int(np.count_nonzero(piece == _BREAK)) + int(piece[-1] != _BREAK))


def _unique(names: list[str]) -> list[str]:
    return [name or f"unnamed {number}" for number, name in enumerate(names)]
