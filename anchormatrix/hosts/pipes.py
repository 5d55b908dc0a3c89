"""The pipes of a supervision agent on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

from anchormatrix.config.secrets import without_values


class AgentPipes:
    """An agent on this machine, started in ``folder``; see :class:`anchormatrix.hosts.supervision.Wire`."""

    def __init__(self, argv: Sequence[str], folder: Path) -> None:
        self._child = subprocess.Popen(
            list(argv),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # what it starts would inherit the secrets that it is not given
            env=without_values(os.environ),
        )
        self._said: str | None = None

    def send(self, data: bytes) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(data)
        self._child.stdin.flush()

    def receive(self, timeout_s: float) -> bytes:
        assert self._child.stdout is not None
        if not select.select([self._child.stdout], [], [], timeout_s)[0]:
            raise TimeoutError
        return os.read(self._child.stdout.fileno(), 65536)

    def end(self, timeout_s: float) -> str:
        child = self._child
        if self._said is None:
            with contextlib.suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout_s)
                assert child.stdout and child.stderr
                self._said = child.stderr.read().decode("utf-8", "replace")
                child.stdout.close()
                child.stderr.close()
        return self._said or ""
