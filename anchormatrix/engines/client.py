"""The client of a serving engine: one request at a time, its answer, and what the answer itself timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anchormatrix.records.requests import RequestStatus


@dataclass(frozen=True)
class ServerFiles:
    """What a client may use of the server's host: an own ``directory`` there, and a way to read a whole file.

    ``read`` gives no bytes for a file that is not there, and raises :class:`HostError` when the host does not answer.
    """

    directory: str
    read: Callable[[str], bytes]


@dataclass(frozen=True)
class Told:
    """What an answer, or a file that the server wrote for it, times: the stages by name and each denoise step, in
    seconds. One rank tells it."""

    stages_s: Mapping[str, float] = field(default_factory=dict)
    steps_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Response:
    """What became of a request. ``status`` is ``ok``, ``error`` (the server refused) or ``lost`` (no answer arrived).

    ``steps`` is how many were asked for. ``fingerprint`` identifies the output: the first 16 hex digits of the SHA-256
    of its bytes. ``peak_memory_mb`` is the most device memory (in units of 2²⁰ bytes) that the request took, where the
    answer tells it. ``content`` are the output's bytes and ``media`` their type. ``told`` is what the answer times,
    where it times anything.
    """

    status: RequestStatus
    latency_s: float
    fingerprint: str | None = None
    error: str = ""
    peak_memory_mb: float | None = None
    content: bytes = field(default=b"", repr=False)
    media: str = ""
    told: Told | None = None
    steps: int = 0


class Client(Protocol):
    """One client of one server. Requests are sent one at a time; nothing here raises for what a server does."""

    def ready(self) -> bool:
        """Whether the server takes requests."""
        ...

    def generate(self, steps: int) -> Response:
        """Send one request of the workload with this number of steps and wait for its output."""
        ...

    def start_profile(self) -> str | None:
        """Have the next request captured. Returns what went wrong, or ``None``."""
        ...

    def stop_profile(self) -> str | None:
        """End the capture; its files are written when this returns. Returns what went wrong, or ``None``."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
