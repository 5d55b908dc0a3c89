"""``npu-smi info``: the cards of an Ascend host and the processes on them.

The output holds two tables. In the first, every card takes two rows; in the second, every NPU has either rows of
processes or a line that says there are none. Generations differ in their columns: boards with one chip per NPU (the
card's id is the NPU), boards with two (a ``Phy-ID`` column gives the id), and boards whose header starts ``NPU ID``.
A reading is refused unless both tables are whole and name the same NPUs: a lost row would otherwise be a lost card or
an overlooked tenant.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import msgspec

from anchormatrix.devices.text import HEALTHY, WARNING, Line, Source, known_health, source
from anchormatrix.records.host import Card, CardProcess

COMMAND = "npu-smi info"

_TITLE = re.compile(r"npu-smi\s+(\S+)\s+Version:\s+(\S+)")
_BORDER = re.compile(r"\+[-=+]*\+")
_IDLE = re.compile(r"No running processes found in NPU\s+(\d{1,4})")
_USED_OF = re.compile(r"(\d{1,9}|NA|-)\s*/\s*(\d{1,9}|NA|-)")
_UNREAD = ("NA", "-")
_NAME = re.compile(r"[A-Za-z0-9][\w .-]*")


def tool_version(text: str) -> tuple[tuple[str, str], ...]:
    """Versions in the title of ``npu-smi info``: the tool's own and, after ``Version:``, the driver's."""
    found = source(text, COMMAND)
    for line in found.lines[:4]:
        match = _TITLE.search(line.text)
        if match:
            return (("driver", match[2]), ("tool", match[1]))
    raise found.error(found.lines[0], "no title before", "`npu-smi <version> Version: <version>`")


def parse_info(text: str) -> tuple[Card, ...]:
    """Read ``npu-smi info``: the cards that are visible here, ascending by id, with their processes.

    Raises :class:`InputError` naming the command and the line for anything that is not a whole, consistent output.
    """
    found = source(text, COMMAND)
    table = _InfoTable(found)
    for line in found.lines:
        table.read(line)
    return table.cards()


class _InfoTable:
    """Reads the lines of ``npu-smi info`` one after the other; each part of the output has its own method."""

    def __init__(self, found: Source) -> None:
        self._found = found
        self._part: Callable[[Line, list[str]], None] = self._title
        self._cards: dict[int, Card] = {}
        self._first: tuple[Line, list[str]] | None = None
        self._processes: dict[tuple[int, int], list[CardProcess]] = {}
        self._idle: set[int] = set()
        self._npu_column = self._id_column = self._hbm = False
        self._process_header: Line | None = None
        self._in_container = self._closed = False

    def read(self, line: Line) -> None:
        text = line.text.strip()
        if _BORDER.fullmatch(text):
            if self._first or self._part == self._second_header:
                raise self._found.error(line, "comes between two rows that belong together:")
            self._closed = True
        elif text.startswith("|") and text.endswith("|") and len(text) > 1:
            self._part(line, [cell.strip() for cell in text[1:-1].split("|")])
            self._closed = False
        else:
            raise self._found.error(line, "is neither a row nor a border of the table:", "rows between | and |")

    def cards(self) -> tuple[Card, ...]:
        if self._part != self._process or not self._closed or self._first:
            raise self._found.error(
                None, "is cut off", "a table of cards and a table of processes, each closed by a border"
            )
        busy, listed = {npu for npu, _ in self._processes}, {card.npu for card in self._cards.values()}
        if busy & self._idle or busy | self._idle != listed:
            raise self._found.error(
                None,
                f"lists cards of NPU {sorted(listed)} but processes of NPU {sorted(busy | self._idle)}",
                "each listed NPU once: with its processes, or with none",
            )
        places = {(card.npu, card.chip) for card in self._cards.values()}
        for npu, chip in self._processes:
            if (npu, chip) not in places:
                raise self._found.error(None, f"lists a process on NPU {npu} chip {chip}, which is not a listed card")
        return tuple(
            msgspec.structs.replace(card, processes=tuple(self._processes.get((card.npu, card.chip), ())))
            for _, card in sorted(self._cards.items())
        )

    def _title(self, line: Line, cells: list[str]) -> None:
        if not _TITLE.search(line.text):
            raise self._found.error(line, "is not the title", "`npu-smi <version> Version: <version>`")
        self._part = self._header

    def _header(self, line: Line, cells: list[str]) -> None:
        names = [" ".join(cell.split()) for cell in cells]
        if names[:2] == ["NPU Name", "Health"] and len(names) == 3:
            self._npu_column = False
        elif names[:3] == ["NPU ID", "Name", "Health"] and len(names) == 4:
            self._npu_column = True
        else:
            raise self._found.error(
                line, "is not the header of the cards", "`NPU Name | Health | …` or `NPU ID | Name | …`"
            )
        if not names[-1].startswith("Power(W) Temp(C)"):
            raise self._found.error(line, "has no power and temperature in", "`Power(W) Temp(C) Hugepages-Usage(page)`")
        self._part = self._second_header

    def _second_header(self, line: Line, cells: list[str]) -> None:
        names = [" ".join(cell.split()) for cell in cells]
        chips = {"Chip": False, "Chip Phy-ID": True, "Chip Device": True}
        if self._npu_column:
            good = names[:3] == ["", "", "Bus-Id"] and len(names) == 4
        else:
            good = len(names) == 3 and names[0] in chips and names[1] == "Bus-Id"
            self._id_column = good and chips[names[0]]
        if not good or "Memory-Usage(MB)" not in names[-1]:
            raise self._found.error(
                line, "is not the second header of the cards", "`Chip | Bus-Id | … Memory-Usage(MB) …`"
            )
        self._hbm = names[-1].endswith("HBM-Usage(MB)")
        self._part = self._card

    def _card(self, line: Line, cells: list[str]) -> None:
        if cells[1:2] == ["Process id"] and re.match(r"NPU\s+(Chip|ID)$", cells[0]):
            self._start_processes(line, cells)
        elif self._first is None:
            self._expect(line, cells, 4 if self._npu_column else 3)
            self._first = (line, cells)
        else:
            self._expect(line, cells, 4 if self._npu_column else 3)
            card = self._pair(*self._first, line, cells)
            if card.id in self._cards or (card.npu, card.chip) in {(c.npu, c.chip) for c in self._cards.values()}:
                raise self._found.error(line, f"lists card {card.id} (NPU {card.npu} chip {card.chip}) a second time:")
            self._cards[card.id] = card
            self._first = None

    def _pair(self, first: Line, upper: list[str], second: Line, lower: list[str]) -> Card:
        found = self._found
        npu_text, name = (upper[0], upper[1]) if self._npu_column else _two(upper[0])
        npu = found.number(first, npu_text, "NPU")
        readings = upper[-1].split(maxsplit=2)
        if not _NAME.fullmatch(name) or len(readings) != 3 or not _USED_OF.fullmatch(readings[2]):
            raise found.error(first, "is not the first row of a card", "name, health, power, temperature, huge pages")
        health = known_health(upper[-2])
        if not re.fullmatch(r"[A-Za-z][A-Za-z _-]{1,30}", health):
            raise found.error(
                first, f"health is {upper[-2]!r} in", "OK, Warning, Alarm, Critical, Fault or another word"
            )
        chip, card_id = self._place(second, lower, npu)
        used, total = self._memory(second, lower[-1], health)
        return Card(
            id=card_id,
            npu=npu,
            chip=chip,
            name=name,
            health=health,
            hbm_used_mb=used,
            hbm_total_mb=total,
            temperature_c=found.reading(first, readings[1], "temperature"),
            power_w=found.reading(first, readings[0], "power"),
        )

    def _place(self, line: Line, lower: list[str], npu: int) -> tuple[int, int]:
        if self._npu_column:
            if lower[:2] != ["", ""]:
                raise self._found.error(line, "is not the second row of a card", "two empty cells first")
            return 0, npu
        chip_text, id_text = _two(lower[0]) if self._id_column else (lower[0], "")
        chip = self._found.number(line, chip_text, "chip")
        if self._id_column:
            return chip, self._found.number(line, id_text, "physical id")
        if chip:
            raise self._found.error(line, f"is chip {chip} of NPU {npu} without a Phy-ID column:", "one chip per NPU")
        return chip, npu

    def _memory(self, line: Line, cell: str, health: str) -> tuple[int, int]:
        """Used and total memory (MB) of a card. A card whose health is bad may have no reading: 0 of 0."""
        pairs = _USED_OF.findall(cell)
        rest = _USED_OF.sub("", cell).split()
        if len(pairs) != (2 if self._hbm else 1) or len(rest) != 1 or not re.fullmatch(r"\d{1,3}|NA|-", rest[0]):
            raise self._found.error(
                line, "is not the second row of a card", "use in %, memory and HBM as `used / total`"
            )
        used, total = pairs[-1]
        if {used, total} <= set(_UNREAD) and health not in (HEALTHY, WARNING):
            return 0, 0
        numbers = (self._found.number(line, used, "memory used"), self._found.number(line, total, "memory"))
        if numbers[1] == 0 or numbers[0] > numbers[1]:
            raise self._found.error(
                line, f"uses {numbers[0]} of {numbers[1]} MB in", "used memory within a total above 0"
            )
        return numbers

    def _start_processes(self, line: Line, cells: list[str]) -> None:
        names = [" ".join(cell.split()) for cell in cells]
        wanted = ["NPU ID" if self._npu_column else "NPU Chip", "Process id", "Process name", "Process memory(MB)"]
        self._in_container = names[4:] == ["Process id in container"]
        if self._first or names[:4] != wanted or (names[4:] and not self._in_container):
            raise self._found.error(line, "is not the header of the processes", " | ".join(wanted))
        if not self._cards:
            raise self._found.error(line, "comes before any card:", "a card")
        self._process_header = line
        self._part = self._process

    def _process(self, line: Line, cells: list[str]) -> None:
        idle = _IDLE.fullmatch(cells[0])
        if idle and not any(cells[1:]):
            npu = int(idle[1])
            if npu in self._idle:
                raise self._found.error(line, f"lists NPU {npu} a second time:")
            self._idle.add(npu)
            return
        cells = self._aligned(line) or cells
        self._expect(line, cells, 5 if self._in_container else 4)
        npu_text, chip_text = (cells[0], "0") if self._npu_column else _two(cells[0])
        npu = self._found.number(line, npu_text, "NPU")
        chip = self._found.number(line, chip_text, "chip")
        pid = self._found.number(line, cells[1], "process id")
        memory = self._found.number(line, cells[3], "process memory")
        if self._in_container and cells[4] not in _UNREAD:
            self._found.number(line, cells[4], "process id in container")
        there = self._processes.setdefault((npu, chip), [])
        if pid and pid in {process.pid for process in there}:
            raise self._found.error(line, f"lists process {pid} a second time:")
        there.append(CardProcess(pid, cells[2], memory))

    def _aligned(self, line: Line) -> list[str] | None:
        """Cells cut at the header's columns, so that a process name may hold a ``|``; ``None`` when not aligned."""
        assert self._process_header is not None
        header, text = self._process_header.text.strip(), line.text.strip()
        bars = [i for i, char in enumerate(header) if char == "|"]
        if len(text) != len(header) or any(text[i] != "|" for i in bars):
            return None
        return [text[a + 1 : b].strip() for a, b in pairwise(bars)]

    def _expect(self, line: Line, cells: list[str], count: int) -> None:
        if len(cells) != count:
            raise self._found.error(line, f"has {len(cells)} cells in", f"{count} cells")


def _two(cell: str) -> tuple[str, str]:
    first, _, rest = cell.partition(" ")
    return first, rest.strip()
