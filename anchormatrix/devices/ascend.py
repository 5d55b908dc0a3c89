"""Ascend cards: what ``npu-smi`` says of them, and how a process is made to see some of them."""

from __future__ import annotations

from collections.abc import Sequence

from anchormatrix.devices.ascend_ids import MAP, logic_ids, parse_map, visible_env
from anchormatrix.devices.ascend_info import parse_info, read_info, tool_version
from anchormatrix.devices.ascend_topology import parse_topology
from anchormatrix.devices.unread import LOST, joined
from anchormatrix.hosts.base import Host
from anchormatrix.records.host import HostState

__all__ = ["AscendDevice", "parse_info", "parse_map", "parse_topology", "read_info"]

INFO = ("npu-smi", "info")
TOPOLOGY = ("npu-smi", "info", "-t", "topo")


class AscendDevice:
    """Ascend cards read with ``npu-smi``; processes see them through ``ASCEND_RT_VISIBLE_DEVICES`` (logic ids)."""

    kind = "ascend"

    def __init__(self) -> None:
        self._logic: dict[int, int] = {}

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run ``npu-smi info``, ``-t topo`` and ``-m``. Raises :class:`HostError` or :class:`InputError`."""
        info = host.run(INFO, timeout_s=timeout_s).stdout
        listing = read_info(info)
        topology = parse_topology(host.run(TOPOLOGY, timeout_s=timeout_s).stdout)
        cards = joined(listing.cards, topology, " ".join(INFO), " ".join(TOPOLOGY))
        usable = [card for card in cards if card.health != LOST]
        self._logic = logic_ids(usable, parse_map(host.run(MAP, timeout_s=timeout_s).stdout))
        return HostState(topology, cards, tool_version(info), listing.notes)

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """``ASCEND_RT_VISIBLE_DEVICES`` with the logic ids of these cards, in this order."""
        return visible_env(cards, self._logic)
