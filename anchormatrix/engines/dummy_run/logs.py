"""Log lines in the grammar of vllm-omni: the log is the measurement, so it must read the same from every engine."""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s"
_DATE = "%m-%d %H:%M:%S"


def worker_tag(degrees: dict[str, tuple[int, int]], pid: int) -> str:
    """Return a rank's tag, such as ``(DiffusionWorker_SP1 pid=238)`` or ``(DiffusionWorker_CFG0_SP1_TP0 pid=9)``.

    ``degrees`` maps a group's name to (rank in the group, size); groups of one are left out.
    """
    parts = [f"{name}{rank}" for name, (rank, size) in degrees.items() if size > 1]
    return f"({'_'.join(['DiffusionWorker', *parts])} pid={pid})"


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
    """A text stream for tqdm: each refresh becomes one write that carries the rank's tag, as on a shared log."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def write(self, text: str) -> None:
        """Write a refresh of the bar: ``\\r``, the tag, then the bar; line ends pass through."""
        bar = text.lstrip("\r")
        sys.stdout.write(f"\r{self._tag} {bar}" if bar.strip() else bar)
        sys.stdout.flush()

    def flush(self) -> None:
        """Nothing is held back."""
