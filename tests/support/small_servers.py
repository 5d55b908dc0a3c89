"""Small servers for the tests of hosts: one that ends when asked, one that hears nothing, and how both are watched."""

from __future__ import annotations

import time
from collections.abc import Callable

from anchormatrix.hosts import processes

POLITE = "import time\nprint('up', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('bye', flush=True)"
STUBBORN = (
    "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"
)


def wait_until(true: Callable[[], bool], seconds: float = 15) -> None:
    """Wait until something is true; fails when it does not become so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not become true"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    found = processes.entry(pid)
    return found is not None and found.state not in "ZX"
