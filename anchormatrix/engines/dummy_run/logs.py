"""Log lines in the grammar of vllm-omni 0.30.0: the log is the measurement, so it must read the same from every engine.

The form is vLLM's (``vllm/logger.py``, ``decorate_logs`` of ``vllm/utils/system_utils.py``) without its colours, as
with VLLM_LOGGING_COLOR=0.
"""

from __future__ import annotations

import logging
import os
import sys

_FORMAT = "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"
_DATE = "%m-%d %H:%M:%S"


def worker_tag(degrees: dict[str, tuple[int, int]], pid: int) -> str:
    """Return a rank's tag, such as ``(DiffusionWorker_SP1 pid=238)`` or ``(DiffusionWorker_SP1_CFG0_TP0 pid=9)``.

    ``degrees`` maps a group's name to (rank in the group, size) in the order of ``diffusion/worker/
    diffusion_worker.py:144-182``; groups of one are left out.
    """
    parts = [f"{name}{rank}" for name, (rank, size) in degrees.items() if size > 1]
    return f"({'_'.join(['DiffusionWorker', *parts])} pid={pid})"


def server_tag() -> str:
    """Return the tag of this process as the API server."""
    return f"(APIServer pid={os.getpid()})"


def open_log(tag: str = "") -> logging.Logger:
    """Return this process's logger: one write per line to stdout, every line with its tag."""
    log = logging.getLogger("dummy_run")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter(f"{tag} {_FORMAT}" if tag else _FORMAT, _DATE))
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    return log


class TaggedBar:
    """A text stream for tqdm that begins each line with the rank's tag; states follow each other on one line."""

    def __init__(self, tag: str) -> None:
        self._tag, self._fresh = tag, True

    def write(self, text: str) -> None:
        """Write a state of the bar or the end of its line."""
        sys.stdout.write(f"{self._tag} {text}" if self._fresh and text else text)
        sys.stdout.flush()
        self._fresh = text.endswith("\n") if text else self._fresh

    def flush(self) -> None:
        """Nothing is held back."""
