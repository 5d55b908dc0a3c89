"""Ascend profiler files: ``kernel_details.csv`` and ``step_trace_time.csv`` of one rank, by exact column names.

Headers differ between versions (``Step Id`` or ``Device_id`` first or neither, ``Block Dim`` or ``Block Num``, dozens
of counters), so columns are found by name and everything not needed is not even converted.
"""

from __future__ import annotations

import csv
import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anchormatrix.captures.csvfile import UnusableRows, line_of, open_binary, read_columns, read_header
from anchormatrix.captures.decimals import Bools, Int64s, nanoseconds
from anchormatrix.captures.names import (
    ASCEND_AICPU_COLLECTIVE,
    ASCEND_COLLECTIVE,
    ASKED,
    COMMUNICATION,
    COMPUTE,
    UNRECOGNISED,
    ascend_core,
    canonical_family,
    meaning,
)
from anchormatrix.captures.table import NO_STREAM, OUTSIDE
from anchormatrix.errors import InputError

NAME, CORE, START, DURATION = "Name", "Accelerator Core", "Start Time(us)", "Duration(us)"
STEP, STREAM, TYPE = "Step Id", "Stream ID", "Type"
STEP_TABLE = {
    "Computing": "computing_ns",
    "Communication(Not Overlapped)": "exposed_ns",
    "Overlapped": "overlapped_ns",
    "Communication": "communication_ns",
    "Free": "free_ns",
    "Stage": "stage_ns",
    "Bubble": "bubble_ns",
    "Preparing": "preparing_ns",
}
_STEP_OPTIONAL = {"Bubble", "Preparing"}


@dataclass(frozen=True)
class RankKernels:
    """Kernels of one rank as an Arrow table (all kernel columns but ``rank``), what could not be used, and whether the
    file says which step a kernel belongs to."""

    table: pa.Table
    rows_read: int
    bad: UnusableRows
    names_steps: bool


def read_kernel_details(path: Path) -> RankKernels:
    """Read one ``kernel_details.csv``.

    Raises :class:`InputError` naming the file when it is empty or lacks a column that is needed.
    """
    names = read_header(path)
    missing = [name for name in (NAME, CORE, START, DURATION) if name not in names]
    if missing:
        raise InputError(
            f"has no column {', '.join(repr(name) for name in missing)}",
            where=f"{path}:1",
            expected=f"{NAME}, {CORE}, {START} and {DURATION}",
            todo="is it a kernel_details.csv?",
        )
    columns = [NAME, CORE, START, DURATION, *(name for name in (STEP, STREAM, TYPE) if name in names)]
    raw, bad = read_columns(path, columns, microseconds=(START, DURATION))
    rows_read = raw.num_rows + bad.total
    start, start_ok = _times(raw[START])
    dur, dur_ok = _times(raw[DURATION])
    good = _usable(path, bad, start_ok, dur_ok, dur)
    raw = raw.drop_columns([START, DURATION])
    if not good.all():
        raw, start, dur = raw.filter(pa.array(good)), start[good], dur[good]
    named = _named(raw)
    kernels = {"step": _steps(raw), "stream": _streams(raw, named["communicator"]), **named}
    del raw
    pa.default_memory_pool().release_unused()
    return RankKernels(
        pa.table({**kernels, "start_ns": pa.array(start), "dur_ns": pa.array(dur)}), rows_read, bad, STEP in names
    )


def _times(column: pa.ChunkedArray) -> tuple[Int64s, Bools]:
    """Return a column of ns and which of them are one."""
    if not column.null_count:
        return column.to_numpy(), np.ones(len(column), np.bool_)
    return pc.fill_null(column, 0).to_numpy(), np.asarray(pc.is_valid(column).to_numpy())


def _usable(path: Path, bad: UnusableRows, start_ok: Bools, dur_ok: Bools, dur: np.ndarray) -> Bools:
    """Return which rows have a start and a duration; count the others, each under its first cause."""
    causes = (
        ("start time is not an exact number", ~start_ok),
        ("duration is not an exact number", start_ok & ~dur_ok),
        ("duration is negative", start_ok & dur_ok & (dur < 0)),
    )
    unusable_lines = bad.total > 0
    for cause, mask in causes:
        count = int(mask.sum())
        if count:
            line = bad.first_line if unusable_lines else int(mask.argmax()) + 2
            bad.add(cause, line, line_of(path, line), count)
    return start_ok & dur_ok & (dur >= 0)


def _one_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a dictionary column as one array with one dictionary."""
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        return whole.chunk(0) if whole.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return whole


def _relabel(codes: pa.Array, labels: pa.Array) -> pa.DictionaryArray:
    """Return ``codes`` under new labels, equal labels merged."""
    merged = labels.dictionary_encode()
    narrow = merged.indices.cast(pa.int8()) if len(merged.dictionary) < 128 else merged.indices
    return pa.DictionaryArray.from_arrays(narrow.take(codes), merged.dictionary)


def _steps(raw: pa.Table) -> pa.Array:
    """Return the step of each row; ``OUTSIDE`` where the field is not a number, 0 without the column."""
    if STEP not in raw.column_names:
        return pa.array(np.zeros(raw.num_rows, np.int32))
    column = _one_chunk(raw[STEP])
    numbers = [whole_number(text.strip(), OUTSIDE) for text in column.dictionary.to_pylist()]
    if not any(number != OUTSIDE for number in numbers):
        numbers = [0] * len(numbers)  # the column is there and empty: a capture of one step
    return pa.array(np.asarray(numbers or [0], np.int32)[np.asarray(column.indices)])


def _streams(raw: pa.Table, communicators: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the stream of each row; calls without one run beside each other, so they are kept apart by communicator:
    ``N/A 445``."""
    if STREAM in raw.column_names:
        column = _one_chunk(raw[STREAM])
        trimmed = pc.utf8_trim_whitespace(column.dictionary)
        streams = _relabel(column.indices, pc.if_else(pc.equal(trimmed, ""), NO_STREAM, trimmed))
    else:
        streams = pa.array([NO_STREAM] * raw.num_rows, pa.string()).dictionary_encode()
    labels, groups = streams.dictionary.to_pylist(), communicators.dictionary.to_pylist()
    if NO_STREAM not in labels or not any(groups):
        return streams
    code, group = np.asarray(streams.indices), np.asarray(communicators.indices)
    apart = (code == labels.index(NO_STREAM)) & np.asarray([bool(label) for label in groups])[group]
    named = pa.array([*labels, *(f"{NO_STREAM} {label}" for label in groups)], pa.string())
    code = np.where(apart, len(labels) + group.astype(np.int32), code)
    used = np.flatnonzero(np.bincount(code, minlength=len(named)))
    position = np.zeros(len(named), np.int32)
    position[used] = np.arange(len(used))
    return _relabel(pa.array(position[code]), named.take(pa.array(used)))


def _named(raw: pa.Table) -> dict[str, pa.DictionaryArray]:
    """Return core, name, family and communicator of each row."""
    name, core = _one_chunk(raw[NAME]), _one_chunk(raw[CORE])
    classes = pa.array([ascend_core(text) for text in core.dictionary.to_pylist()], pa.string())
    labels = pc.utf8_trim_whitespace(name.dictionary)
    family, communicator = collectives_of(labels)
    cores = _relabel(core.indices, classes)
    families, communicators = _relabel(name.indices, family), _relabel(name.indices, communicator)
    families = _complete(raw, cores, families)
    cores = _communicating(cores, families)
    return {"core": cores, "name": _relabel(name.indices, labels), "family": families, "communicator": communicators}


def _communicating(cores: pa.DictionaryArray, families: pa.DictionaryArray) -> pa.DictionaryArray:
    """Move collectives that run on the computing engines (HCCL_OP_EXPANSION_MODE=AIV) to communication."""
    labels, named = cores.dictionary.to_pylist(), np.asarray([text != "" for text in families.dictionary.to_pylist()])
    if COMPUTE not in labels or not named.any():
        return cores
    code = np.asarray(cores.indices)
    moved = (code == labels.index(COMPUTE)) & named[np.asarray(families.indices)]
    if not moved.any():
        return cores
    return _relabel(
        pa.array(np.where(moved, len(labels), code).astype(np.int32)), pa.array([*labels, COMMUNICATION], pa.string())
    )


def collectives_of(names: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return family and communicator of each distinct name, both empty for a kernel that is no collective."""
    operation, communicator = pa.nulls(len(names), pa.string()), pa.nulls(len(names), pa.string())
    for form, words in ((ASCEND_COLLECTIVE, r"^(?i:hcom|hccl)"), (ASCEND_AICPU_COLLECTIVE, r"(?i:aicpukernel)")):
        asked = pc.and_(pc.is_null(operation), pc.match_substring_regex(names, words))
        if pc.any(asked).as_py():
            found = _extracted(names.filter(asked), form)
            operation = pc.replace_with_mask(operation, asked, pc.struct_field(found, "family"))
            communicator = pc.replace_with_mask(communicator, asked, pc.struct_field(found, "communicator"))
    spelling = operation.dictionary_encode("encode")
    spelt = [canonical_family(text) if text else "" for text in spelling.dictionary.to_pylist()]
    family = pa.array(spelt, pa.string()).take(spelling.indices)
    others = np.flatnonzero(pc.is_null(operation))
    asked = np.asarray(pc.match_substring_regex(names.take(pa.array(others)), ASKED))
    explained = {place: meaning(names[place].as_py()).family for place in others[asked].tolist()}
    if any(explained.values()):
        mask = np.zeros(len(names), np.bool_)
        mask[list(explained)] = True
        family = pc.replace_with_mask(family, pa.array(mask), pa.array(explained.values(), pa.string()))
    return family, pc.fill_null(communicator, "")


def _extracted(names: pa.Array, form: str) -> pa.StructArray:
    """Return the named groups of a pattern; each call of HCCL has a name of its own, so there may be very many."""
    half = len(names) // 2
    with ThreadPoolExecutor(max_workers=2) as pool:
        halves = pool.map(lambda part: pc.extract_regex(part, form), (names[:half], names[half:]))
        return pa.concat_arrays(list(halves))


def _complete(raw: pa.Table, cores: pa.DictionaryArray, families: pa.DictionaryArray) -> pa.DictionaryArray:
    """Make sure that no communication row loses its time: its name says the family, or ``Type``, or nothing does."""
    core = np.asarray([text == COMMUNICATION for text in cores.dictionary.to_pylist()] or [False])
    named = np.asarray([text != "" for text in families.dictionary.to_pylist()] or [False])
    lost = core[np.asarray(cores.indices)] & ~named[np.asarray(families.indices)]
    if not lost.any():
        return families
    text = np.asarray(families.cast(pa.string()).to_pylist(), dtype=object)
    kinds = raw[TYPE].filter(pa.array(lost)).cast(pa.string()) if TYPE in raw.column_names else None
    by_type = collectives_of(pc.utf8_trim_whitespace(kinds.combine_chunks()))[0].to_pylist() if kinds else []
    text[lost] = [family or UNRECOGNISED for family in by_type] or UNRECOGNISED
    return pa.array(text.tolist(), pa.string()).dictionary_encode()


def read_step_trace(path: Path, rank: int) -> pd.DataFrame:
    """Read a ``step_trace_time.csv`` (or the cluster's table of all ranks) into ``STEP_COLUMNS``, integer nanoseconds.

    Columns are matched by exact name: ``Communication`` is a substring of ``Communication(Not Overlapped)``. A table
    with ``Type`` and ``Index`` is a cluster's: its ``rank`` rows carry their rank, its ``stage`` rows are summaries.
    Raises :class:`InputError` naming file and line.
    """
    try:
        with open_binary(path) as stream:
            text = stream.read().decode("utf-8-sig", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        names = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, row) for row in reader if any(field.strip() for field in row)]
    except csv.Error as error:
        raise InputError(f"is not readable as CSV ({error})", where=f"{path}:{reader.line_num}") from None
    missing = [name for name in STEP_TABLE if name not in names and name not in _STEP_OPTIONAL]
    if missing:
        raise InputError(
            f"has no column {', '.join(repr(name) for name in missing)}", where=f"{path}:1", todo="is it a step table?"
        )
    values: dict[str, list[int]] = {column: [] for column in ("rank", "step", *STEP_TABLE.values())}
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"has {len(row)} fields", where=f"{path}:{line}", expected=f"{len(names)} as in the header"
            )
        cell = dict(zip(names, (field.strip() for field in row), strict=True))
        if cell.get("Type", "rank") != "rank":
            continue
        values["rank"].append(whole_number(cell.get("Index", ""), rank))
        values["step"].append(whole_number(cell.get("Step", ""), 0))
        for name, column in STEP_TABLE.items():
            values[column].append(_step_time(cell.get(name, "0"), name, f"{path}:{line}"))
    if not values["rank"]:
        raise InputError("has no row of a rank", where=str(path), todo="capture again")
    return pd.DataFrame(values)


def _step_time(text: str, name: str, where: str) -> int:
    ns, valid = nanoseconds(pa.array([text or "0"], pa.string()))
    if not valid[0]:
        raise InputError(f"{name} is {text!r}", where=where, expected="microseconds")
    return int(ns[0])


def whole_number(text: str, default: int) -> int:
    """A number of a rank or step; nine digits are more than any has."""
    return int(text) if text.isdecimal() and len(text) <= 9 else default
