"""A directory of profiler files as a :class:`Capture`: which family, which ranks, which file belongs to which."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from anchormatrix.captures.ascend import RankKernels, read_kernel_details
from anchormatrix.captures.ascend_files.raw import folders_without, is_raw, refuse_raw
from anchormatrix.captures.ascend_files.step_tables import is_cluster_table, read_step_tables
from anchormatrix.captures.ascend_files.trace_view import is_trace_view, read_trace_view
from anchormatrix.captures.csvfile import holds_rows
from anchormatrix.captures.frame import kernel_frame
from anchormatrix.captures.kineto import TraceFile, is_trace, read_trace
from anchormatrix.captures.naming.findings import name_findings
from anchormatrix.captures.table import MOST_RANKS, Capture, empty_windows, no_calls
from anchormatrix.captures.torch.activity import EmptyTraceError
from anchormatrix.captures.torch.beside import read_beside
from anchormatrix.captures.torch.devices import findings_of, ranks_of_devices
from anchormatrix.errors import InputError
from anchormatrix.records.finding import Finding

LIMIT_PCT = 1.0
_RANK = re.compile(r"rank[-_ ]?(\d{1,5})(?!\d)", re.IGNORECASE)
_PROFILER_INFO = re.compile(r"profiler_info_(\d{1,5})\.json(?:\.gz)?")


def load_capture(directory: Path | str, *, limit_pct: float = LIMIT_PCT, every_rank: bool = False) -> Capture:
    """Read every rank below ``directory`` (or a single file).

    Ascend output is one directory per rank (its rank from ``profiler_info_<rank>.json``, from ``rank<k>`` in the path,
    or by order), torch traces are one file per rank. Raises :class:`InputError` when nothing is found, a rank occurs
    twice, or more than ``limit_pct`` percent of a file's rows are unusable (with the first such line). A rank whose
    table is empty is left out, which is a finding; with ``every_rank`` it refuses the capture.
    """
    root = Path(directory)
    if not root.exists():
        raise InputError("no such file or directory", where=str(root), expected="the directory of a capture")
    files = [root] if root.is_file() else _files_below(root)
    kernels = [path for path in files if path.name.startswith("kernel_details") and _is(path, ".csv")]
    steps = [path for path in files if "step_trace_time" in path.name and _is(path, ".csv")]
    if kernels or steps:
        return _load_ascend(root, kernels, steps, limit_pct, every_rank)
    written = [path for path in files if _is(path, ".json")]
    traces = [path for path in written if is_trace(path)]
    if views := [path for path in traces if is_trace_view(path)]:
        return _load_trace_views(root, views, limit_pct, every_rank)
    if traces:
        return _load_kineto(root, traces, _of_other_ranks(root, written, traces), limit_pct, every_rank)
    refuse_raw(root)
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


def _load_ascend(
    root: Path, kernel_files: list[Path], step_files: list[Path], limit_pct: float, every_rank: bool
) -> Capture:
    notes: list[str] = []
    clusters = [path for path in step_files if is_cluster_table(path)]
    own = [path for path in step_files if path not in clusters]
    ranks = _ranks(root, kernel_files or own, notes)
    held = [path for path in kernel_files if holds_rows(path)]
    empty = {path: ranks[path] for path in kernel_files if path not in held}
    findings = _left_out(empty, "holds no row", bool(held), every_rank)
    bare = {folder: _stated_rank(root, folder / "x") for folder in folders_without(root, (*kernel_files, *step_files))}
    raw = {folder: rank for folder, rank in bare.items() if is_raw(folder)}
    findings += _left_out(raw, "holds raw data that was not analysed", True, every_rank)
    bare = {folder: rank for folder, rank in bare.items() if folder not in raw}
    findings += _left_out(bare, "holds neither kernels nor steps", True, every_rank)
    read = [one for one in _read_all(held, read_kernel_details) if isinstance(one, RankKernels)]
    for path, one in zip(held, read, strict=True):
        one.bad.refuse_above(limit_pct, one.rows_read, str(path))
    beside = {path.parent: rank for path, rank in ranks.items()}
    stated = {path: beside.get(path.parent, _stated_rank(root, path)) for path in own}
    steps, contradictions = read_step_tables({path: rank or 0 for path, rank in stated.items()}, clusters, notes)
    if steps is not None:
        read = [_with_step(one, steps, ranks[path], notes) for path, one in zip(held, read, strict=True)]
    kernels = kernel_frame([(ranks[path], one.table) for path, one in zip(held, read, strict=True)])
    return Capture(
        kernels=kernels,
        steps=steps,
        windows=empty_windows(),
        family="ascend",
        rows_read=sum(one.rows_read for one in read),
        rows_unusable=dict(sum((one.bad.causes for one in read), Counter())),
        sources=tuple(str(path) for path in (*kernel_files, *step_files)),
        notes=tuple(notes),
        findings=(*findings, *contradictions, *name_findings(kernels)),
    )


def _left_out(empty: Mapping[Path, int | None], what: str, others: bool, every_rank: bool) -> list[Finding]:
    """Return a finding for the ranks whose files are empty; raise when they are all there is, or all are asked for."""
    for path in empty:
        if every_rank or not others:
            raise InputError(what, where=str(path), todo="the capture is empty: capture again")
    return [
        Finding("empty_rank", f"{'a rank' if rank is None else f'rank {rank}'} is left out: {path} {what}", ranks)
        for path, rank in empty.items()
        for ranks in [() if rank is None else (rank,)]
    ]


def _load_trace_views(root: Path, paths: list[Path], limit_pct: float, every_rank: bool) -> Capture:
    notes = ["read from trace_view.json: kernel_details.csv is not there"]
    ranks = _ranks(root, paths, notes)
    read = dict(zip(paths, map(read_trace_view, paths), strict=True))
    for path, (_, _, bad, count) in read.items():
        bad.refuse_above(limit_pct, count, str(path))
    held = [path for path, (table, *_) in read.items() if table.num_rows]
    empty = {path: ranks[path] for path in paths if path not in held}
    findings = _left_out(empty, "holds no task of the device and no collective", bool(held), every_rank)
    kernels = kernel_frame([(ranks[path], read[path][0]) for path in held])
    windows = [(ranks[path], *window) for path in held for window in read[path][1]]
    return Capture(
        kernels=kernels,
        steps=None,
        windows=pd.DataFrame(windows, columns=["rank", "step", "start_ns", "end_ns"]) if windows else empty_windows(),
        family="ascend",
        rows_read=sum(count for *_, count in read.values()),
        rows_unusable=dict(sum((bad.causes for _, _, bad, _ in read.values()), Counter())),
        sources=tuple(map(str, paths)),
        notes=tuple(notes),
        findings=(*findings, *name_findings(kernels)),
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


def _of_other_ranks(root: Path, written: list[Path], traces: list[Path]) -> list[Path]:
    """Return the files without events that state a rank of which there is no trace: cut off before its events."""
    known = {None, *(_stated_rank(root, path) for path in traces)}
    return [path for path in written if path not in traces and _stated_rank(root, path) not in known]


def _load_kineto(root: Path, files: list[Path], cut: list[Path], limit_pct: float, every_rank: bool) -> Capture:
    notes: list[str] = []
    found = dict(zip(files, read_beside(files, _read_or_empty), strict=True))
    held = {path: one for path, one in found.items() if isinstance(one, TraceFile)}
    for path, one in held.items():
        one.bad.refuse_above(limit_pct, one.rows_read, str(path))
    empty = {path: one for path, one in found.items() if isinstance(one, EmptyTraceError)}
    empty |= {path: _empty(path, "has no usable event") for path, one in held.items() if not one.table.num_rows}
    empty |= {path: _empty(path, "holds no list of events") for path in cut}
    if any(one.devices for one in held.values()):
        hosts = [path for path, one in held.items() if not one.devices]
        empty |= {path: _empty(path, "holds host operators only, beside ranks with a device") for path in hosts}
    held = {path: one for path, one in held.items() if path not in empty}
    findings = _without_kernels(root, empty, bool(held), every_rank)
    inside = {path: one.rank for path, one in held.items() if one.rank is not None}
    alike = len(inside) == len(held) == len(set(inside.values()))
    ranks: dict[Path, tuple[int, ...]] = {
        path: (rank,) for path, rank in (inside if alike else _ranks(root, held, notes)).items()
    }
    ranks |= ranks_of_devices(held, findings)
    parts = [
        (rank, table, one.windows)
        for path, one in held.items()
        for rank, table in zip(ranks[path], one.tables, strict=True)
    ]
    windows = [(rank, *window) for rank, _, steps in parts for window in steps]
    calls = [(rank, *call) for path, one in held.items() for rank in ranks[path] for call in one.calls]
    kernels = kernel_frame([(rank, table) for rank, table, _ in parts])
    for path, one in held.items():
        notes += one.remarks
        findings += findings_of(path, one, ranks[path])
    return Capture(
        kernels=kernels,
        steps=None,
        windows=pd.DataFrame(windows, columns=["rank", "step", "start_ns", "end_ns"]) if windows else empty_windows(),
        family="kineto",
        rows_read=sum(one.rows_read for one in held.values()),
        rows_unusable=dict(sum((one.bad.causes for one in held.values()), Counter())),
        sources=tuple(str(path) for path in held),
        notes=tuple(notes),
        calls=pd.DataFrame(calls, columns=["rank", "name", "start_ns", "end_ns"]) if calls else no_calls(),
        findings=(*findings, *name_findings(kernels)),
    )


def _read_or_empty(path: Path) -> TraceFile | EmptyTraceError:
    try:
        return read_trace(path)
    except EmptyTraceError as error:
        return error


def _empty(path: Path, what: str) -> EmptyTraceError:
    return EmptyTraceError(what, where=str(path), todo="capture again")


def _without_kernels(
    root: Path, empty: Mapping[Path, EmptyTraceError], others: bool, every_rank: bool
) -> list[Finding]:
    """Return a finding for each file without kernels; raise when they are all there is, or all are asked for."""
    findings = []
    for path, error in empty.items():
        if every_rank or not others:
            raise error
        rank = _stated_rank(root, path) if error.rank is None else error.rank
        named = "" if rank is None else f"rank {rank} is left out: "
        text = f"{named}{path} {error.what}{'' if named else ' (left out)'}"
        findings.append(Finding("empty_rank", text, () if rank is None else (rank,)))
    return findings
