"""The frame of every command: errors as one line, exit codes 0, 1 (finding) and 2."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from anchormatrix.config.secrets import masked
from anchormatrix.errors import AnchorMatrixError, shown_lines

FINDING = 1
CANNOT = 2


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Name the missing package and the interpreter that has it: most likely the system's Python was called."""
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(("anchormatrix", "virtualhost")):
        name = Path(sys.argv[0]).name
        print(
            f"{name}: {sys.executable} has no package {error.name}; run .venv/bin/python {sys.argv[0]} …"
            " (any make target makes .venv)",
            file=sys.stderr,
        )
        os._exit(CANNOT)  # the interpreter's own code would be 1, a finding
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _tell


def run(main: Callable[[], int | None]) -> None:
    """Run a command and leave with its exit code; an expected error becomes one line on stderr and exit code 2."""
    _make_streams_usable()
    try:
        code = main()
        sys.stdout.flush()
    except AnchorMatrixError as error:
        print(f"{Path(sys.argv[0]).name}: {masked(str(error))}", file=sys.stderr)
        code = CANNOT
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CANNOT
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
        code = 128 + signal.SIGINT
    except OSError as error:  # a full disk, a folder that cannot be read: nothing a stack of calls would explain
        where = f"{error.filename}: " if error.filename else ""
        print(f"{Path(sys.argv[0]).name}: {where}{error.strerror or error}", file=sys.stderr)
        code = CANNOT
    raise SystemExit(code or 0)


class _Printable:
    """A stream that shows controls escaped: what commands quote reaches a terminal, also by way of the logs of jobs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(shown_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _make_streams_usable() -> None:
    """Let a closed stream swallow what is printed, and one of few letters escape the others: neither is a failure."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, _Printable(stream))
