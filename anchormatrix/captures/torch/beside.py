"""Big files of several ranks, read beside each other: one process per core, each with one rank in memory at a time."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from anchormatrix.errors import AnchorMatrixError, InputError, quoted_line

T = TypeVar("T")

_WORTH_A_PROCESS = 32 << 20  # bytes of text; below, starting Python takes longer than reading
_PACKED = 12  # bytes of a trace in one byte of its gzip file


def read_beside(paths: Sequence[Path], read: Callable[[Path], T]) -> list[T]:
    """Return what ``read``, a function of a module, returns for each path; raises what it raises."""
    workers = min(len(paths), len(os.sched_getaffinity(0)))
    if workers < 2 or sum(map(_size, paths)) < _WORTH_A_PROCESS:
        return [read(path) for path in paths]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda path: _in_a_process(path, read), paths))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size * (_PACKED if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def _in_a_process(path: Path, read: Callable[[Path], T]) -> T:
    # Not multiprocessing: it would import the main module again, which may be anything.
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps((read, path)),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        last = quoted_line(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        raise InputError(
            f"its reader ended with exit code {done.returncode}: {last}",
            where=str(path),
            todo="is there memory enough? each core reads one rank",
        )
    found: T | AnchorMatrixError = pickle.loads(done.stdout)
    if isinstance(found, AnchorMatrixError):
        raise found
    return found


def main() -> None:
    """Read the file that stdin names and write the result, or the error, to stdout."""
    read, path = pickle.load(sys.stdin.buffer)
    try:
        found = read(path)
    except AnchorMatrixError as error:
        found = error
    sys.stdout.buffer.write(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
