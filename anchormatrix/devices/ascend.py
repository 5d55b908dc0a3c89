"""Ascend cards: what ``npu-smi`` says of them, and how a process is made to see some of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.devices.ascend_info import parse_info, tool_version
from anchormatrix.devices.ascend_topology import parse_topology
from anchormatrix.devices.text import Line, Source, source
from anchormatrix.errors import InputError
from anchormatrix.hosts.base import Host
from anchormatrix.records.host import Card, CardProcess, HostState

__all__ = [
    "AscendDevice",
    "ChipIds",
    "logic_ids",
    "parse_info",
    "parse_map",
    "parse_proc_mem",
    "parse_topology",
    "tool_version",
]

INFO = ("npu-smi", "info")
TOPOLOGY = ("npu-smi", "info", "-t", "topo")
MAP = ("npu-smi", "info", "-m")

_PROC_MEM = re.compile(r"Process id\s*:\s*(\d+)\s+Process name\s*:\s*(.*?)\s*Process memory\(MB\)\s*:\s*(\d+)")


@dataclass(frozen=True)
class ChipIds:
    """One row of ``npu-smi info -m``: where a chip sits, and the ids software knows it by."""

    npu: int
    chip: int
    logic: int
    physical: int | None


def parse_map(text: str) -> tuple[ChipIds, ...]:
    """Read ``npu-smi info -m``: logic and physical ids by NPU and chip; rows of management units are left out.

    Outputs without a ``Chip Phy-ID`` column give ``physical`` as ``None``. Raises :class:`InputError`.
    """
    found = source(text, " ".join(MAP))
    columns = re.split(r"\s{2,}|\t", found.lines[0].text.strip())
    wanted = ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"]
    if [column for column in columns if column != "Chip Phy-ID"] != wanted or columns[-1] != "Chip Name":
        raise found.error(found.lines[0], "is not the header of the id map", ", ".join(wanted))
    rows = [_map_row(found, line, columns) for line in found.lines[1:]]
    chips = tuple(row for row in rows if row)
    if not chips:
        raise found.error(None, "names no chip", "a row per chip")
    for what in ("logic", "physical"):
        ids = [getattr(chip, what) for chip in chips if getattr(chip, what) is not None]
        if len(set(ids)) != len(ids):
            raise found.error(None, f"gives two chips the same {what} id", "different ids")
    if len({(chip.npu, chip.chip) for chip in chips}) != len(chips):
        raise found.error(None, "lists a chip twice", "a row per chip")
    return chips


def parse_proc_mem(text: str) -> dict[int, tuple[CardProcess, ...]]:
    """Read ``npu-smi info -t proc-mem -i N``: the processes of one NPU by chip. Raises :class:`InputError`."""
    found = source(text, "npu-smi info -t proc-mem")
    chips: dict[int, tuple[CardProcess, ...]] = {}
    said_none, waiting = False, []
    for line in found.lines:
        clean = line.text.strip()
        process, chip = _PROC_MEM.fullmatch(clean), re.fullmatch(r"Chip ID\s*:\s*(\d{1,4})", clean)
        if process:
            waiting.append(CardProcess(int(process[1]), process[2], int(process[3])))
        elif clean == "No process in device.":
            said_none = True
        elif chip and bool(waiting) != said_none and int(chip[1]) not in chips:
            chips[int(chip[1])] = tuple(waiting)
            said_none, waiting = False, []
        elif not re.fullmatch(r"NPU ID\s*:\s*\d{1,4}", clean):
            raise found.error(line, "is not a process or a chip", "`Process id:… Process name:… Process memory(MB):…`")
    if waiting or said_none or not chips:
        raise found.error(None, "stops before the chip is named", "`Chip ID : n`")
    return chips


class AscendDevice:
    """Ascend cards read with ``npu-smi``; processes see them through ``ASCEND_RT_VISIBLE_DEVICES`` (logic ids)."""

    kind = "ascend"

    def __init__(self) -> None:
        self._logic: dict[int, int] = {}

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run ``npu-smi info``, ``-t topo`` and ``-m``. Raises :class:`HostError` or :class:`InputError`."""
        info = host.run(INFO, timeout_s=timeout_s).stdout
        cards = parse_info(info)
        topology = parse_topology(host.run(TOPOLOGY, timeout_s=timeout_s).stdout)
        listed = tuple(card.id for card in cards)
        if listed != topology.cards:
            raise InputError(
                f"`{' '.join(INFO)}` lists cards {list(listed)} but `{' '.join(TOPOLOGY)}` {list(topology.cards)}",
                expected="both to list the same cards",
                todo="a card may have dropped off the bus: look at both outputs on the host",
            )
        self._logic = logic_ids(cards, parse_map(host.run(MAP, timeout_s=timeout_s).stdout))
        return HostState(topology, cards, tool_version(info))

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """``ASCEND_RT_VISIBLE_DEVICES`` with the logic ids of these cards, in this order."""
        missing = [card for card in cards if card not in self._logic]
        if missing:
            raise InputError(
                f"no logic id is known for card {missing[0]}",
                where=" ".join(MAP),
                expected=f"one of {sorted(self._logic)}" if self._logic else "the host to be read first",
            )
        return {"ASCEND_RT_VISIBLE_DEVICES": ",".join(str(self._logic[card]) for card in cards)}


def logic_ids(cards: Sequence[Card], chips: Sequence[ChipIds]) -> dict[int, int]:
    """Logic id by card id. Raises :class:`InputError` when the map lacks a card or disagrees on its physical id."""
    by_place = {(chip.npu, chip.chip): chip for chip in chips}
    logic: dict[int, int] = {}
    for card in cards:
        chip = by_place.get((card.npu, card.chip))
        if chip is None:
            raise InputError(
                f"NPU {card.npu} chip {card.chip} is not in the id map", where=f"output of `{' '.join(MAP)}`"
            )
        logic[card.id] = chip.logic
    return logic


def _map_row(found: Source, line: Line, columns: Sequence[str]) -> ChipIds | None:
    cells = line.text.split(maxsplit=len(columns) - 1)
    if len(cells) != len(columns):
        raise found.error(line, f"has {len(cells)} cells in", f"{len(columns)} cells")
    row = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
    npu = found.number(line, row["NPU ID"], "NPU ID")
    chip = found.number(line, row["Chip ID"], "Chip ID")
    ids = [row[key] for key in ("Chip Logic ID", "Chip Phy-ID") if key in row]
    if all(value == "-" for value in ids) and row["Chip Name"] == "Mcu":
        return None
    numbers = [found.number(line, value, "an id") for value in ids]
    return ChipIds(npu, chip, numbers[0], numbers[1] if len(numbers) > 1 else None)
