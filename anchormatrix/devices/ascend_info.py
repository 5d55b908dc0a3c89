"""``npu-smi info``: the cards of an Ascend host and the processes on them.

The output holds two tables. In the first, every card takes two rows; in the second, every NPU has either rows of
processes or a line that says there are none. Generations differ in their columns: boards with one chip per NPU (the
card's id is the NPU), boards with two (a ``Phy-ID`` column gives the id), and boards whose header starts ``NPU ID``.
A reading is refused unless both tables are closed. A card whose rows cannot be read is unusable, with its reason, and
refuses no other. Tools of some generations list only busy NPUs in the second table; where the tool names idle ones too,
an NPU that it does not name is a card whose processes are not known. Of several outputs in one text the last whole one
counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from anchormatrix.devices.ascend_processes import ProcessTable
from anchormatrix.devices.text import Line, Listing, Source, beside, known_health, last_whole, source, two
from anchormatrix.devices.unread import AGAIN, first_free, partly, refuse_all_lost, unread_card
from anchormatrix.errors import InputError
from anchormatrix.records.host import Card, CardState

COMMAND = "npu-smi info"

_TITLE = re.compile(r"npu-smi\s+(\S+)\s+Version:\s+(\S+)")
_BORDER = re.compile(r"\+[-=+]*\+")
_USED_OF = re.compile(r"(\d{1,9}|NA|-)\s*/\s*(\d{1,9}|NA|-)")
_UNREAD = ("NA", "-")
_BUS = re.compile(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|NA")
_NAME = re.compile(r"[A-Za-z0-9][\w .-]*")


def tool_version(text: str) -> tuple[tuple[str, str], ...]:
    """Versions in the title of ``npu-smi info``: the tool's own and, after ``Version:``, the driver's."""
    found = source(text, COMMAND)
    for line in found.lines:
        match = _TITLE.search(line.text)
        if match:
            return (("driver", match[2]), ("tool", match[1]))
    raise found.error(found.lines[0], "no title before", "`npu-smi <version> Version: <version>`")


def parse_info(text: str) -> tuple[Card, ...]:
    """The cards of :func:`read_info`."""
    return read_info(text).cards


def read_info(text: str) -> Listing:
    """Read ``npu-smi info``: the cards that are visible here, ascending by id, with their processes.

    Raises :class:`InputError` naming the command and the line for anything that is not a whole output, and when no
    card at all can be read.
    """
    found = source(text, COMMAND)
    listing = last_whole(found, _beginnings(found), _read_output)
    refuse_all_lost(listing.cards, COMMAND)
    return listing


def _read_output(found: Source) -> Listing:
    table = _InfoTable(found)
    for line in found.lines:
        table.read(line)
    return table.listing()


def _beginnings(found: Source) -> list[int]:
    """Where outputs begin: at the border above a title that comes after a table of processes. A title that comes before
    one only heads the next page of the cards."""
    places, ended = [0], False
    for place, line in enumerate(found.lines):
        if ended and _TITLE.search(line.text):
            above = _BORDER.fullmatch(found.lines[place - 1].text.strip())
            places.append(place - 1 if above else place)
            ended = False
        ended = ended or "| Process id " in line.text
    return places


class _InfoTable:
    """Reads the lines of ``npu-smi info`` one after the other; each part of the output has its own method."""

    def __init__(self, found: Source) -> None:
        self._found = found
        self._part: Callable[[Line, list[str]], None] = self._title
        self._cards: dict[int, Card] = {}
        self._first: tuple[Line, list[str]] | None = None
        self._processes = ProcessTable(found)
        self._npu_column = self._id_column = self._hbm = False
        self._closed = False
        self._others: list[Line] = []
        self._nameless: list[str] = []

    def read(self, line: Line) -> None:
        text = line.text.strip()
        if _BORDER.fullmatch(text):
            if self._part == self._second_header:
                raise self._found.error(line, "comes between two rows that belong together:")
            if self._first:
                self._unread(self._first[1], "cannot be read: its second row is missing")
                self._first = None
            self._closed = True
        elif text.startswith("|") and len(text) > 1:
            self._part(line, [cell.strip() for cell in text.strip("|").split("|")])
            self._closed = False
        else:
            self._others.append(line)

    def listing(self) -> Listing:
        if self._part != self._processes.row or not self._closed or self._first:
            first = next((line for line in self._others if self._part == self._title), None)
            if first:
                raise self._found.error(first, "is not the title", "`npu-smi <version> Version: <version>`")
            raise self._found.error(
                None, "is cut off", "a table of cards and a table of processes, each closed by a border"
            )
        busy, idle = self._processes.busy, self._processes.idle
        for reason in self._nameless:
            npu = min((busy | idle) - {card.npu for card in self._cards.values()}, default=None)
            card = first_free(self._cards) if npu is None or npu in self._cards else npu
            self._cards[card] = unread_card(card, reason, npu=npu)
        self._only_processes()
        cards = tuple(self._with_processes(card) for _, card in sorted(self._cards.items()))
        return Listing(cards, (*beside(COMMAND, self._others), *self._processes.notes))

    def _only_processes(self) -> None:
        """Cards that the second table alone names are lost; two chips of an NPU have neighbouring ids."""
        missing = {(npu, 0) for npu in self._processes.idle - {card.npu for card in self._cards.values()}}
        missing |= set(self._processes.of) - {(card.npu, card.chip) for card in self._cards.values()}
        for npu, chip in sorted(missing):
            per_npu = 2 if self._id_column else 1
            card = npu * per_npu + chip
            if chip >= per_npu or card in self._cards:
                raise self._found.error(None, f"lists a process on NPU {npu} chip {chip}, which is not a listed card")
            reason = "is lost: the table of processes names it, the table of cards does not"
            self._cards[card] = unread_card(card, reason, npu=npu, chip=chip)

    def _with_processes(self, card: Card) -> Card:
        """A card with its processes; partly known when a row of them cannot be read, or when the tool names idle NPUs
        and does not name this one at all."""
        table = self._processes
        found = msgspec.structs.replace(card, processes=tuple(table.of.get((card.npu, card.chip), ())))
        if (table.busy and not table.idle) or card.npu in table.busy | table.idle:
            return partly(found, table.doubt(card.npu, card.chip))
        return partly(found, table.doubt(card.npu, card.chip) or "is not named in the table of processes")

    def _title(self, line: Line, cells: list[str]) -> None:
        if not _TITLE.search(line.text):
            raise self._found.error(line, "is not the title", "`npu-smi <version> Version: <version>`")
        self._part = self._header

    def _unread(self, upper: list[str], reason: str, place: tuple[int, int] | None = None) -> None:
        """Keep a card that cannot be read: under its own id where its rows tell it, else under the first free one."""
        npu_text = upper[0].split(" ")[0]
        if place is None and not (npu_text.isascii() and npu_text.isdigit() and len(npu_text) <= 4):
            self._nameless.append(reason)
            return
        npu = int(npu_text) if npu_text.isdigit() else 0
        chip = sum(card.npu == npu for card in self._cards.values()) if self._id_column else 0
        chip, card = place or (chip, npu * 2 + chip if self._id_column else npu)
        if card in self._cards:
            reason, chip, npu = f"is listed a second time: {AGAIN}", self._cards[card].chip, self._cards[card].npu
        self._cards[card] = unread_card(card, reason, npu=npu, chip=chip)

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
        elif _TITLE.search(line.text) or cells[-2:-1] in (["Health"], ["Bus-Id"]) or len(cells) == 1:
            self._others.append(line)
        elif self._first is None and cells[-2:-1] and _BUS.fullmatch(cells[-2]):
            self._nameless.append("cannot be read: its first row is missing")
        elif self._first is None:
            self._first = (line, cells)
        else:
            upper, self._first = self._first, None
            self._read_pair(*upper, line, cells)

    def _read_pair(self, first: Line, upper: list[str], second: Line, lower: list[str]) -> None:
        """The card of two rows; when they cannot be read, a lost card with the reason."""
        place = None
        try:
            npu = self._found.number(first, upper[0].split(" ")[0], "NPU")
            place = self._place(second, lower, npu)
            self._expect(first, upper, 4 if self._npu_column else 3)
            self._expect(second, lower, 4 if self._npu_column else 3)
            card = self._pair(first, upper, second, lower)
        except InputError as error:
            self._unread(upper, f"cannot be read: its row {error.what}", place)
            return
        if card.id in self._cards or (card.npu, card.chip) in {(c.npu, c.chip) for c in self._cards.values()}:
            self._unread(upper, f"is listed a second time: {AGAIN}", place)
        else:
            self._cards[card.id] = card

    def _pair(self, first: Line, upper: list[str], second: Line, lower: list[str]) -> Card:
        found = self._found
        npu_text, name = (upper[0], upper[1]) if self._npu_column else two(upper[0])
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
        used, total = self._memory(second, lower[-1])
        unknown = used is None or total is None
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
            state=CardState.PARTLY if unknown else CardState.KNOWN,
            reason="does not tell its memory" if unknown else "",
        )

    def _place(self, line: Line, lower: list[str], npu: int) -> tuple[int, int]:
        if self._npu_column:
            if lower[:2] != ["", ""]:
                raise self._found.error(line, "is not the second row of a card", "two empty cells first")
            return 0, npu
        chip_text, id_text = two(lower[0]) if self._id_column else (lower[0], "")
        chip = self._found.number(line, chip_text, "chip")
        if self._id_column:
            return chip, self._found.number(line, id_text, "physical id")
        if chip:
            raise self._found.error(line, f"is chip {chip} of NPU {npu} without a Phy-ID column:", "one chip per NPU")
        return chip, npu

    def _memory(self, line: Line, cell: str) -> tuple[int | None, int | None]:
        """Used and total memory (MB) of a card, each ``None`` where the tool does not tell it."""
        pairs = _USED_OF.findall(cell)
        rest = _USED_OF.sub("", cell).split()
        if len(pairs) != (2 if self._hbm else 1) or len(rest) != 1 or not re.fullmatch(r"\d{1,3}|NA|-", rest[0]):
            raise self._found.error(
                line, "is not the second row of a card", "use in %, memory and HBM as `used / total`"
            )
        used, total = (None if text in _UNREAD else self._found.number(line, text, "memory") for text in pairs[-1])
        if total == 0 or (used is not None and total is not None and used > total):
            raise self._found.error(line, f"uses {used} of {total} MB in", "used memory within a total above 0")
        return used, total

    def _start_processes(self, line: Line, cells: list[str]) -> None:
        if self._first:
            raise self._found.error(line, "comes between two rows that belong together:")
        if not self._cards:
            raise self._found.error(line, "comes before any card:", "a card")
        self._processes.begin(line, cells, npu_column=self._npu_column)
        self._part = self._processes.row

    def _expect(self, line: Line, cells: list[str], count: int) -> None:
        if len(cells) != count:
            raise self._found.error(line, f"has {len(cells)} cells in", f"{count} cells")
