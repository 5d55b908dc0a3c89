"""The ids of Ascend cards: ``npu-smi info -m`` ties a card to its logic id, by which a process is made to see it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anchormatrix.devices.text import Line, Source, source
from anchormatrix.errors import InputError
from anchormatrix.records.host import Card

MAP = ("npu-smi", "info", "-m")


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


def visible_env(cards: Sequence[int], logic: Mapping[int, int]) -> dict[str, str]:
    """``ASCEND_RT_VISIBLE_DEVICES`` with the logic ids of these cards, in this order.

    Raises :class:`InputError` for a card whose logic id is not known.
    """
    missing = [card for card in cards if card not in logic]
    if missing:
        raise InputError(
            f"no logic id is known for card {missing[0]}",
            where=" ".join(MAP),
            expected=f"one of {sorted(logic)}" if logic else "the host to be read first",
        )
    return {"ASCEND_RT_VISIBLE_DEVICES": ",".join(str(logic[card]) for card in cards)}


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
