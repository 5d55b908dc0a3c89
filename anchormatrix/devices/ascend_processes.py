"""The second table of ``npu-smi info``: which processes are on which card.

A row that cannot be read is still a process of somebody: it stays one of its card, with what it tells, and makes the
card partly known. A row that does not even tell its card makes every card partly known.
"""

from __future__ import annotations

import re

from anchormatrix.devices.text import Line, Source, aligned, two
from anchormatrix.errors import InputError
from anchormatrix.records.host import CardProcess

_IDLE = re.compile(r"No running processes found in NPU\s+(\d{1,4})")
_UNREAD = ("NA", "-")

Place = tuple[int, int]  # NPU and chip


class ProcessTable:
    """Processes by card, in ``of``; ``idle`` are the NPUs that the table says nothing runs on."""

    def __init__(self, found: Source) -> None:
        self._found = found
        self._header: Line | None = None
        self._npu_column = self._in_container = False
        self._unread: dict[Place | None, list[str]] = {}
        self.of: dict[Place, list[CardProcess]] = {}
        self.idle: set[int] = set()

    @property
    def busy(self) -> set[int]:
        """The NPUs with a process."""
        return {npu for npu, _ in self.of}

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows could not be read, and the first of them."""
        said = [what for rows in self._unread.values() for what in rows]
        return (f"`{self._found.command}` has {len(said)} process rows that cannot be read: {said[0]}",) if said else ()

    def doubt(self, npu: int, chip: int) -> str:
        """Why the processes of a card are not known for sure; empty when they are."""
        mine, nobodys = self._unread.get((npu, chip), ()), self._unread.get(None, ())
        if mine:
            return f"has {len(mine)} process rows that cannot be read: {mine[0]}"
        return f"may have a process of which the row cannot be read: {nobodys[0]}" if nobodys else ""

    def begin(self, line: Line, cells: list[str], *, npu_column: bool) -> None:
        """Read the header; a tool that is asked twice prints it again."""
        names = [" ".join(cell.split()) for cell in cells]
        wanted = ["NPU ID" if npu_column else "NPU Chip", "Process id", "Process name", "Process memory(MB)"]
        self._in_container = names[4:] == ["Process id in container"]
        if names[:4] != wanted or (names[4:] and not self._in_container):
            raise self._found.error(line, "is not the header of the processes", " | ".join(wanted))
        self._header, self._npu_column = line, npu_column

    def row(self, line: Line, cells: list[str]) -> None:
        """Read one row."""
        idle = _IDLE.fullmatch(cells[0])
        if idle and not any(cells[1:]):
            self.idle.add(int(idle[1]))
            return
        if cells[1:2] == ["Process id"]:
            self.begin(line, cells, npu_column=self._npu_column)
            return
        cells = (self._header and aligned(self._header, line)) or cells
        place = self._place(cells)
        try:
            self._expect(line, cells)
            process = self._process(line, cells)
        except InputError as error:
            self._unread.setdefault(place, []).append(error.what)
            process = CardProcess(_pid(cells), "a row that cannot be read", None)
        if place is None:
            return
        there = self.of.setdefault(place, [])
        if not process.pid or process.pid not in {other.pid for other in there}:
            there.append(process)

    def _place(self, cells: list[str]) -> Place | None:
        npu, chip = (cells[0], "0") if self._npu_column else two(cells[0])
        return (int(npu), int(chip)) if _is_number(npu) and _is_number(chip) else None

    def _expect(self, line: Line, cells: list[str]) -> None:
        if len(cells) != (count := 5 if self._in_container else 4):
            raise self._found.error(line, f"has {len(cells)} cells in", f"{count} cells")
        for text, what in zip(two(cells[0]), ("NPU",) if self._npu_column else ("NPU", "chip"), strict=False):
            self._found.number(line, text, what)

    def _process(self, line: Line, cells: list[str]) -> CardProcess:
        pid = self._found.number(line, cells[1], "process id")
        memory = None if cells[3] in _UNREAD else self._found.number(line, cells[3], "process memory")
        if self._in_container and cells[4] not in _UNREAD:
            self._found.number(line, cells[4], "process id in container")
        return CardProcess(pid, cells[2], memory)


def _pid(cells: list[str]) -> int:
    return int(cells[1]) if len(cells) > 1 and _is_number(cells[1]) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
