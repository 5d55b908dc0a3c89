"""The interface of a vendor's device: one reading of the host, and how a process is made to see some cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anchormatrix.hosts.base import Host
from anchormatrix.records.host import HostState


class Device(Protocol):
    """The cards of one vendor."""

    kind: str

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run the vendor's tools and return topology, health, occupancy and versions.

        ``versions`` always holds ``driver`` and ``tool``. Raises :class:`HostError` when a tool is missing, fails or
        hangs, and :class:`InputError` when what it prints cannot be read.
        """
        ...

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """The environment that makes a process see these cards, in this order. Needs an earlier :meth:`read`."""
        ...
