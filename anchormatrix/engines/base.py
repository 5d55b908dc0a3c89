"""The interface of a serving engine: from a form to a command line, and what its log must then say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from anchormatrix.records.form import Form


@dataclass(frozen=True)
class ServeCommand:
    """How to start a server. ``env`` is added to the host's environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Engine(Protocol):
    """One serving engine; all of them speak the same protocol and write the same log."""

    name: str

    def refusal(self, form: Form) -> str | None:
        """Why this engine cannot run the form at all, or ``None``."""
        ...

    def serve_command(
        self,
        form: Form,
        *,
        port: int,
        visible_env: Mapping[str, str],
        capture_dir: str | None,
        capture_request: int | None = None,
    ) -> ServeCommand:
        """The command that serves the form on a loopback port; with a profiler when ``capture_dir`` is given.

        ``visible_env`` is the device's environment for the cards of the group. ``capture_request`` is the number, from
        1, of the request that is captured when the environment triggers it. Raises :class:`EngineError` when the engine
        refuses the form.
        """
        ...

    def expected_groups(self, form: Form) -> dict[str, int]:
        """Group sizes of the form by the names the start-up log uses; ``world`` is the number of ranks."""
        ...

    def capture_request_steps(self, few: int) -> int:
        """How many steps the request must have in which the configured number of steps is captured."""
        ...
