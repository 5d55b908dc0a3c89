"""A directory of profiler files as a :class:`Capture`: which family, which ranks, which file belongs to which."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from anchormatrix.captures.ascend import RankKernels, read_kernel_details, read_step_trace
from anchormatrix.captures.kineto import TraceFile, is_trace, read_trace
from anchormatrix.captures.names import CORES
from anchormatrix.captures.naming.findings import name_findings
from anchormatrix.captures.table import MOST_RANKS, OUTSIDE, Capture, empty_windows
from anchormatrix.errors import InputError

LIMIT_PCT = 1.0
_RANK = re.compile(r"rank[-_ ]?(\d{1,5})(?!\d)", re.IGNORECASE)
_PROFILER_INFO = re.compile(r"profiler_info_(\d{1,5})\.json(?:\.gz)?")


def load_capture(directory: Path | str, *, limit_pct: float = LIMIT_PCT) -> Capture:
    """Read every rank below ``directory`` (or a single file).

    Ascend output is one directory per rank (its rank from ``profiler_info_<rank>.json``, from ``rank<k>`` in the path,
    or by order), torch traces are one file per rank. Raises :class:`InputError` when nothing is found, a rank occurs
    twice, or more than ``limit_pct`` percent of a file's rows are unusable (with the first such line).
    """
    root = Path(directory)
    if not root.exists():
        raise InputError("no such file or directory", where=str(root), expected="the directory of a capture")
    files = [root] if root.is_file() else _files_below(root)
    kernels = [path for path in files if path.name.startswith("kernel_details") and _is(path, ".csv")]
    steps = [path for path in files if "step_trace_time" in path.name and _is(path, ".csv")]
    if kernels or steps:
        return _load_ascend(root, kernels, steps, limit_pct)
    traces = [path for path in files if _is(path, ".json") and is_trace(path)]
    if traces:
        return _load_kineto(root, traces, limit_pct)
    raise InputError(
        f"holds no profiler output ({len(files)} files)",
        where=str(root),
        expected="kernel_details.csv or step_trace_time.csv per rank, or a torch trace (.json, .json.gz) per rank",
        todo="give the directory that the profiler wrote to",
    )


def _files_below(root: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"cannot be read ({error.strerror})", where=str(error.filename)) from None

    found = (Path(folder, name) for folder, _, names in os.walk(root, onerror=refuse) for name in names)
    return sorted(path for path in found if not path.name.startswith(".") and _readable(path))  # ".": still written


def _readable(path: Path) -> bool:
    """Not a pipe or a device, which would never end; a link that leads nowhere is named when it is read."""
    return path.is_file() or not path.exists()


def _is(path: Path, suffix: str) -> bool:
    return path.name.endswith((suffix, f"{suffix}.gz"))


def _ranks(root: Path, paths: Iterable[Path], notes: list[str]) -> dict[Path, int]:
    """Return the rank of each file; files that do not say get the free numbers in order, which is noted."""
    known: dict[Path, int] = {}
    silent: list[Path] = []
    for path in paths:
        rank = _stated_rank(root, path)
        if rank is None:
            silent.append(path)
        else:
            known[path] = rank
    free = (number for number in range(len(known) + len(silent) + 1) if number not in known.values())
    for path in silent:
        known[path] = next(free)
    if len(silent) > 1:
        notes.append(f"{len(silent)} files do not say their rank and were numbered in order of their paths")
    twice = [rank for rank, count in Counter(known.values()).items() if count > 1]
    if twice:
        first, second, *_ = [path for path, rank in known.items() if rank == twice[0]]
        raise InputError(
            f"rank {twice[0]} occurs twice: {first} and {second}",
            where=str(root),
            expected="one capture",
            todo="give the directory of one capture",
        )
    return known


def _stated_rank(root: Path, path: Path) -> int | None:
    for folder in (path.parent, path.parent.parent):
        if not folder.is_relative_to(root):
            break
        for info in folder.glob("profiler_info_*"):
            if match := _PROFILER_INFO.fullmatch(info.name):
                return _possible(match[1])
    inner = path.relative_to(root).parts if path != root else (path.name,)
    for part in reversed(inner):
        if match := _RANK.search(part):
            return _possible(match[1])
    return None


def _possible(digits: str) -> int | None:
    return int(digits) if int(digits) <= MOST_RANKS else None


def _read_all(paths: list[Path], read: Callable[[Path], object]) -> list[object]:
    with ThreadPoolExecutor(max_workers=max(1, min(len(paths), os.cpu_count() or 1, 4))) as pool:
        return list(pool.map(read, paths))


def _load_ascend(root: Path, kernel_files: list[Path], step_files: list[Path], limit_pct: float) -> Capture:
    notes: list[str] = []
    folders = _ranks(root, kernel_files or step_files, notes)
    read = [one for one in _read_all(kernel_files, read_kernel_details) if isinstance(one, RankKernels)]
    for path, one in zip(kernel_files, read, strict=True):
        one.bad.refuse_above(limit_pct, one.rows_read, str(path))
        if not one.table.num_rows:
            raise InputError("has a header and no rows", where=str(path), todo="the capture is empty: capture again")
    beside = {path.parent: rank for path, rank in folders.items()}
    tables = []
    for path in step_files:
        stated = beside.get(path.parent, _stated_rank(root, path))
        tables.append(read_step_trace(path, stated if stated is not None else 0))
    steps = _step_table(tables) if tables else None
    if steps is not None:
        read = [_with_step(one, steps, folders[path], notes) for path, one in zip(kernel_files, read, strict=True)]
    causes = sum((one.bad.causes for one in read), Counter())
    kernels = _kernel_frame([(folders[path], one.table) for path, one in zip(kernel_files, read, strict=True)])
    return Capture(
        kernels=kernels,
        steps=steps,
        windows=empty_windows(),
        family="ascend",
        rows_read=sum(one.rows_read for one in read),
        rows_unusable=dict(causes),
        sources=tuple(str(path) for path in (*kernel_files, *step_files)),
        notes=tuple(notes),
        findings=tuple(name_findings(kernels)),
    )


def _with_step(one: RankKernels, steps: pd.DataFrame, rank: int, notes: list[str]) -> RankKernels:
    """Give kernels of a file that names no step the only step of the rank's step table."""
    known = steps["step"][steps["rank"] == rank].tolist()
    if one.names_steps or not known:
        return one
    if len(known) > 1:
        notes.append(f"rank {rank}: the kernel table names no step and the step table has {len(known)}")
        return one
    step = pa.array(np.full(one.table.num_rows, known[0], np.int32))
    return replace(one, table=one.table.set_column(one.table.column_names.index("step"), "step", step))


def _step_table(tables: list[pd.DataFrame]) -> pd.DataFrame:
    steps = pd.concat(tables, ignore_index=True).sort_values(["rank", "step"], kind="stable", ignore_index=True)
    again = steps.duplicated(["rank", "step"])
    if again.any():
        rank, step = steps[again][["rank", "step"]].iloc[0].tolist()
        raise InputError(
            f"step {step} of rank {rank} occurs twice", where="step_trace_time.csv", expected="one capture"
        )
    return steps


def _load_kineto(root: Path, paths: list[Path], limit_pct: float) -> Capture:
    notes: list[str] = []
    read = [one for one in _read_all(paths, read_trace) if isinstance(one, TraceFile)]
    for path, one in zip(paths, read, strict=True):
        one.bad.refuse_above(limit_pct, one.rows_read, str(path))
    inside = {path: one.rank for path, one in zip(paths, read, strict=True) if one.rank is not None}
    if len(inside) == len(paths) and len(set(inside.values())) == len(paths):
        ranks = inside
    else:
        ranks = _ranks(root, paths, notes)
    windows = [(ranks[path], *window) for path, one in zip(paths, read, strict=True) for window in one.windows]
    causes = sum((one.bad.causes for one in read), Counter())
    kernels = _kernel_frame([(ranks[path], one.table) for path, one in zip(paths, read, strict=True)])
    return Capture(
        kernels=kernels,
        steps=None,
        windows=pd.DataFrame(windows, columns=["rank", "step", "start_ns", "end_ns"]) if windows else empty_windows(),
        family="kineto",
        rows_read=sum(one.rows_read for one in read),
        rows_unusable=dict(causes),
        sources=tuple(str(path) for path in paths),
        notes=tuple(notes),
        findings=tuple(name_findings(kernels)),
    )


def _kernel_frame(tables: list[tuple[int, pa.Table]]) -> pd.DataFrame:
    """Join the ranks' tables, ordered by rank and start, text columns as categories shared by all ranks."""
    tables = sorted(tables, key=lambda item: item[0])
    ordered = [_by_start(table) for _, table in tables]
    counts = [table.num_rows for table in ordered]
    columns: dict[str, object] = {"rank": np.repeat(np.asarray([rank for rank, _ in tables], np.int16), counts)}
    for name in ("step", "stream", "core", "name", "family", "communicator", "start_ns", "dur_ns"):
        chunks = [chunk for table in ordered for chunk in table[name].chunks]
        if name in ("step", "start_ns", "dur_ns"):
            columns[name] = np.concatenate([chunk.to_numpy() for chunk in chunks] or [np.empty(0, np.int64)])
        else:
            columns[name] = _categorical(chunks, CORES if name == "core" else None)
    columns["step"] = np.asarray(columns["step"], np.int32)
    return pd.DataFrame(columns, copy=False)


def _by_start(table: pa.Table) -> pa.Table:
    start = table["start_ns"].to_numpy()
    if len(start) < 2 or bool((start[1:] >= start[:-1]).all()):
        return table
    return table.take(pa.array(np.argsort(start, kind="stable")))


def _categorical(chunks: list[pa.Array], categories: Iterable[str] | None) -> Any:
    """Return chunks of dictionary arrays as one :class:`pandas.Categorical`."""
    if not chunks:
        return pd.Categorical([], categories=list(categories or [""]))
    whole = pa.chunked_array(chunks).unify_dictionaries()
    labels = whole.chunk(0).dictionary.to_pylist()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in whole.chunks])
    if categories is None:
        return pd.Categorical.from_codes(codes, categories=pd.Index(labels))
    wanted = list(categories)
    position = np.asarray([wanted.index(label) for label in labels] or [OUTSIDE])
    return pd.Categorical.from_codes(position[codes], categories=pd.Index(wanted))
