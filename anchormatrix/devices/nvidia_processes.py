"""``nvidia-smi --query-compute-apps``: which processes are on which GPU.

A row that cannot be read is still a process of somebody: it stays one of its GPU, with what it tells, and makes the
card partly known. A row that does not even tell its GPU makes every card partly known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anchormatrix.devices.nvidia_cells import NO_HANDLE, column, is_absent, mib
from anchormatrix.devices.text import Line, Source, source
from anchormatrix.errors import InputError
from anchormatrix.records.host import Card, CardProcess

PROCESSES = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv")
MIG = "MIG"

_APPS = "nvidia-smi --query-compute-apps"
_NO_PROCESSES = "No running processes found"
_COLUMNS = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")
_NOBODY = ""


@dataclass
class Processes:
    """Processes by the uuid of their GPU, and what of the rows could not be read, by uuid too."""

    by_gpu: dict[str, list[CardProcess]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)

    def of(self, uuid: str) -> tuple[CardProcess, ...]:
        """The processes on a GPU."""
        return tuple(self.by_gpu.get(uuid, ()))

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows could not be read, and the first of them."""
        said = list(dict.fromkeys(what for rows in self.unread.values() for what in rows))
        return (f"`{_APPS}` has {len(said)} rows that cannot be read: {said[0]}",) if said else ()

    def doubt(self, uuid: str) -> str:
        """Why the processes of a GPU are not known for sure; empty when they are."""
        mine, nobodys = self.unread.get(uuid, []) if uuid else [], self.unread.get(_NOBODY, [])
        if mine:
            return f"has {len(mine)} process rows that cannot be read: {mine[0]}"
        return f"may have a process of which the row cannot be read: {nobodys[0]}" if nobodys else ""


def parse_processes(text: str, uuids: Mapping[str, Card], *, all_known: bool = True) -> Processes:
    """Read ``nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv`` by GPU uuid.

    Where the tool cannot tell a process's memory (inside containers), all memory used on the card stands for it: an
    upper bound, never 0, and unknown where the card's is. Unless the uuid of every card is known (``all_known``), a
    process on a GPU that is not listed is one of a lost card. Raises :class:`InputError`.
    """
    found = source(text, _APPS)
    told = Processes()
    lines = [line for line in found.lines if not NO_HANDLE.search(line.text)]
    if lines and all(line.text.strip() == _NO_PROCESSES or is_process_header(line) for line in lines):
        return told
    if not lines or not is_process_header(lines[0]):
        raise found.error(lines[0] if lines else None, "is not the header of the processes", ", ".join(_COLUMNS))
    for line in lines[1:]:
        if not is_process_header(line):
            _take(told, found, line, uuids, all_known)
    return told


def is_process_header(line: Line) -> bool:
    """Whether a line is the header of the processes."""
    return tuple(column(cell) for cell in line.text.split(",")) == _COLUMNS


def _take(told: Processes, found: Source, line: Line, uuids: Mapping[str, Card], all_known: bool) -> None:
    cells = [cell.strip() for cell in line.text.split(",", 3)]  # a name may hold commas
    owners = _owners(cells[0], uuids)
    if not owners and all_known and len(cells) == 4:
        raise found.error(line, "names a GPU that is not listed:", "a uuid of --query-gpu")
    for owner in owners:
        try:
            process = _process(found, line, cells, uuids[owner])
        except InputError as error:
            told.unread.setdefault(owner, []).append(error.what)
            pid = cells[1] if len(cells) > 1 and cells[1].isascii() and cells[1].isdigit() else "0"
            process = CardProcess(int(pid[:9]), "a row that cannot be read", uuids[owner].hbm_used_mb)
        if process not in told.by_gpu.setdefault(owner, []):  # a second table repeats the first
            told.by_gpu[owner].append(process)
    if not owners and len(cells) != 4:
        told.unread.setdefault(_NOBODY, []).append(found.error(line, f"has {len(cells)} cells in").what)


def _process(found: Source, line: Line, cells: list[str], card: Card) -> CardProcess:
    if len(cells) != 4:
        raise found.error(line, f"has {len(cells)} cells in", "4 cells")
    _, pid, memory, name = cells
    used = card.hbm_used_mb if is_absent(memory) else mib(found, line, memory, "used memory")
    return CardProcess(found.number(line, pid, "pid"), name, used)


def _owners(uuid: str, cards: Mapping[str, Card]) -> list[str]:
    """The GPUs a listed uuid may mean: itself; for an instance its GPU, or, where it does not say, each that is cut."""
    if uuid in cards:
        return [uuid]
    named = [known for known in cards if uuid.startswith(f"MIG-{known}/")]
    return named or [known for known, card in cards.items() if uuid.startswith("MIG-") and card.health == MIG]
