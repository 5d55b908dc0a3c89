"""Folders of torch_npu's profiler that hold what was recorded and not yet what it means.

A worker that is a daemon process cannot analyse its own capture (torch_npu 2.7.1,
``profiler/analysis/_npu_profiler.py:22``), and vllm-omni's are: the offline ``analyse`` then makes
``kernel_details.csv`` from ``PROF_*`` and ``FRAMEWORK``. It takes such a folder or the one right above it
(``profiler/analysis/prof_common_func/_path_manager.py:108``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from anchormatrix.errors import InputError

FOLDER = "*_ascend_pt"
ANALYSED = ("kernel_details.csv", "trace_view.json")
_RAW = ("PROF_*", "FRAMEWORK")


def analyse_command(python: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the command that analyses raw folders, where torch_npu is installed."""
    source = "import sys; from torch_npu.profiler.profiler import analyse; [analyse(one) for one in sys.argv[1:]]"
    return (*python, "-c", source, *folders)


def folders_without(root: Path, files: Iterable[Path]) -> list[Path]:
    """Return the folders of ranks below ``root`` (``…_ascend_pt``) with none of the files."""
    known = list(files)
    folders = (path for path in root.rglob(FOLDER) if path.is_dir())
    return sorted(path for path in folders if not any(one.is_relative_to(path) for one in known))


def is_raw(folder: Path) -> bool:
    """Whether a rank's folder holds what was recorded, and nothing that was made of it."""
    recorded = any(any(folder.glob(name)) for name in _RAW)
    return recorded and not any(any(folder.rglob(f"{name}*")) for name in ANALYSED)


def refuse_raw(root: Path) -> None:
    """Raise :class:`InputError` with the command that analyses them when there are raw folders below ``root``."""
    raw = [path for path in (root, *folders_without(root, ())) if path.is_dir() and is_raw(path)]
    if raw:
        command = shlex.join(analyse_command(("python",), map(str, raw)))
        raise InputError(
            f"holds raw data of torch_npu's profiler ({', '.join(_RAW)}) and no kernel_details.csv",
            where=str(raw[0]),
            expected="the output of its analysis",
            todo=f"run where torch_npu is installed, then give the directory again: {command}",
        )


def raw_listed(paths: Iterable[str]) -> list[str]:
    """Return the raw folders among paths as ``find`` lists them on a host: ranks' folders, and what was made there."""
    listed = [PurePosixPath(path) for path in paths]
    folders = [path for path in listed if path.match(FOLDER)]
    made = [path for path in listed if path.name in ANALYSED]
    return [str(folder) for folder in folders if not any(one.is_relative_to(folder) for one in made)]
