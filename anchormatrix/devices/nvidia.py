"""NVIDIA cards: the text of ``nvidia-smi`` becomes cards and links, and processes are made to see some of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from anchormatrix.devices.nvidia_cells import NO_HANDLE, column, is_absent, mib
from anchormatrix.devices.nvidia_processes import MIG, PROCESSES, Processes, is_process_header, parse_processes
from anchormatrix.devices.nvidia_topology import parse_topology
from anchormatrix.devices.text import HEALTHY, WARNING, Line, Listing, Source, beside, last_whole, source
from anchormatrix.devices.unread import AGAIN, first_free, joined, partly, refuse_all_lost, unread_card
from anchormatrix.errors import InputError, quoted_line
from anchormatrix.hosts.base import Host
from anchormatrix.records.host import NOT_STATED, Card, CardState, HostState

__all__ = ["NvidiaDevice", "parse_gpus", "parse_topology"]

TOPOLOGY = ("nvidia-smi", "topo", "-m")
_GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "mig.mode.current",
    "ecc.errors.uncorrected.volatile.total",
)
GPUS = ("nvidia-smi", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv")

_QUERY = "nvidia-smi --query-gpu"
_NEEDED = ("index", "uuid", "name", "memory.used", "memory.total")
_BROKEN = re.compile(r"\[?(Unknown Error|ERR!|GPU is lost.*|GPU requires reset)\]?", re.IGNORECASE)
_UUID = re.compile(r"GPU-[0-9a-f-]{8,40}")


@dataclass(frozen=True)
class _Gpu:
    """One GPU and what ties it to other outputs."""

    uuid: str
    driver: str
    card: Card


def parse_gpus(text: str) -> tuple[Card, ...]:
    """Read ``nvidia-smi --query-gpu=… --format=csv`` with at least index, uuid, name and memory, ascending by index.

    Health is ``MIG`` for a GPU cut into instances (it cannot be one card of a group), ``Warning`` after uncorrected
    memory errors, else ``OK``. A GPU that the tool cannot read is ``Lost``, unusable with its reason. Raises
    :class:`InputError` naming the command and the line when there is no header or no GPU at all.
    """
    return _with_processes(_gpus(source(text, _QUERY)), "").cards


def parse_health(text: str) -> Listing:
    """Read a file that holds the output of ``--query-gpu`` and, after it, that of ``--query-compute-apps``.

    The second may be missing; then no processes are known. Where both come several times, the last counts. Raises
    :class:`InputError`.
    """
    found = source(text, _QUERY)
    listing = last_whole(found, _beginnings(found), _read_output)
    refuse_all_lost(listing.cards, _QUERY)
    return listing


def _read_output(found: Source) -> Listing:
    apps = next((i for i, line in enumerate(found.lines) if is_process_header(line)), len(found.lines))
    processes = "\n".join(line.text for line in found.lines[apps:])
    return _with_processes(_gpus(Source(found.command, found.lines[:apps])), processes)


def _beginnings(found: Source) -> list[int]:
    """Where outputs begin: at a header of the GPUs that comes after one of the processes."""
    places, ended = [0], False
    for place, line in enumerate(found.lines):
        if ended and _is_header(line):
            places.append(place)
            ended = False
        ended = ended or is_process_header(line)
    return places


@dataclass(frozen=True)
class _Gpus:
    """The GPUs of one output, and what the tool said beside its rows."""

    found: tuple[_Gpu, ...]
    notes: tuple[str, ...]


class NvidiaDevice:
    """NVIDIA cards read with ``nvidia-smi``; processes see them through ``CUDA_VISIBLE_DEVICES``."""

    kind = "nvidia"

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run ``nvidia-smi`` three times. Raises :class:`HostError` or :class:`InputError`.

        The tool ends with an error as soon as one GPU is lost; what it printed of the others counts all the same.
        """
        done = host.run(GPUS, timeout_s=timeout_s, check=False)
        gpus = _gpus(source(done.stdout or done.stderr, _QUERY))
        listing = _with_processes(gpus, host.run(PROCESSES, timeout_s=timeout_s, check=False).stdout)
        refuse_all_lost(listing.cards, _QUERY)
        matrix = host.run(TOPOLOGY, timeout_s=timeout_s, check=False)
        topology = parse_topology(matrix.stdout or matrix.stderr)
        cards = joined(listing.cards, topology, _QUERY, " ".join(TOPOLOGY))
        driver = next((gpu.driver for gpu in gpus.found if gpu.card.state is not CardState.UNUSABLE), NOT_STATED)
        return HostState(topology, cards, (("driver", driver), ("tool", driver)), listing.notes)

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """``CUDA_VISIBLE_DEVICES``, with the order of ``nvidia-smi`` (that of the PCI bus) made CUDA's too."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}


def _gpus(found: Source) -> _Gpus:
    start, columns = _header(found)
    rows: dict[int, list[_Gpu]] = {}
    lost: list[str] = []
    others: list[Line] = list(found.lines[:start])
    for line in found.lines[start + 1 :]:
        cells = [cell.strip() for cell in line.text.split(",")]
        no_handle = NO_HANDLE.search(line.text)
        if no_handle and no_handle[1]:
            gpu = int(no_handle[1])
            rows.setdefault(gpu, []).append(_lost(gpu, f"is lost: the tool says {quoted_line(no_handle[0])}"))
        elif no_handle:
            lost.append(f"is lost: the tool says {quoted_line(no_handle[0])}")
        elif re.fullmatch(r"[0-9]{1,4}", cells[0]):
            rows.setdefault(int(cells[0]), []).append(_read_row(found, line, columns, cells))
        elif len(cells) == len(columns) and _BROKEN.fullmatch(cells[0]):
            lost.append(f"is lost: the tool says {quoted_line(cells[0])} even for its index")
        elif [column(cell) for cell in cells] != columns:
            others.append(line)
    for reason in lost:  # its index is not told: the first that no other row has
        rows.setdefault(card := first_free(rows), []).append(_lost(card, reason))
    if not rows:
        raise found.error(None, "lists no GPU", "a row per GPU")
    again = [
        card
        for card, same in sorted(rows.items())
        if len(same) > 1 and same[0].uuid and {gpu.uuid for gpu in same} == {same[0].uuid}
    ]
    gpus = [
        same[-1] if len(same) == 1 or card in again else _lost(card, f"is listed {len(same)} times: {AGAIN}")
        for card, same in sorted(rows.items())
    ]
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    once = [
        _lost(gpu.card.id, f"has the uuid of another row, {gpu.uuid}: {AGAIN}") if uuids.count(gpu.uuid) > 1 else gpu
        for gpu in gpus
    ]
    notes = (f"`{found.command}` lists cards {', '.join(map(str, again))} again: the last row counts",) if again else ()
    return _Gpus(tuple(once), (*beside(found.command, others), *notes))


def _header(found: Source) -> tuple[int, list[str]]:
    """The place and the columns of the header, which warnings of the driver may precede."""
    for place, line in enumerate(found.lines):
        if _is_header(line):
            return place, [column(cell) for cell in line.text.split(",")]
    columns = [column(cell) for cell in found.lines[0].text.split(",")]
    missing = next(name for name in _NEEDED if columns.count(name) != 1)
    raise found.error(found.lines[0], f"has no column {missing} in", f"a header with {', '.join(_NEEDED)}")


def _is_header(line: Line) -> bool:
    columns = [column(cell) for cell in line.text.split(",")]
    return all(columns.count(name) == 1 for name in _NEEDED)


def _lost(card: int, reason: str, uuid: str = "") -> _Gpu:
    return _Gpu(uuid, NOT_STATED, unread_card(card, reason))


def _read_row(found: Source, line: Line, columns: Sequence[str], cells: Sequence[str]) -> _Gpu:
    """The GPU of a row; a row that cannot be read is a lost card with its reason, and refuses no other."""
    row = dict(zip(columns, cells, strict=False))
    broken = next(((name, value) for name, value in row.items() if _BROKEN.fullmatch(value)), None)
    uuid = row["uuid"] if _UUID.fullmatch(row.get("uuid", "")) else ""
    if broken:
        return _lost(int(cells[0]), f"is lost: the tool says {quoted_line(broken[1])} for {broken[0]}", uuid)
    try:
        if len(cells) != len(columns):
            raise found.error(line, f"has {len(cells)} cells in", f"{len(columns)} cells")
        return _gpu(found, line, row)
    except InputError as error:
        return _lost(int(cells[0]), f"cannot be read: its row {error.what}", uuid)


def _gpu(found: Source, line: Line, row: Mapping[str, str]) -> _Gpu:
    index = found.number(line, row["index"], "index")
    if not row["name"] or not row["name"].isprintable() or "\ufffd" in row["name"] or is_absent(row["name"]):
        raise found.error(line, "has no name in", "the model of the GPU")
    if not _UUID.fullmatch(row["uuid"]):
        raise found.error(line, "has no uuid in", "GPU-xxxxxxxx-…")
    used, total = (
        None if is_absent(row[name]) else mib(found, line, row[name], name) for name in ("memory.used", "memory.total")
    )
    if total == 0 or (used is not None and total is not None and used > total):
        raise found.error(line, f"uses {used} of {total} MiB in", "used memory within a total above 0")
    health = _health(found, line, row)
    unknown = " and ".join(name for name, value in (("memory.used", used), ("memory.total", total)) if value is None)
    state, reason = (CardState.PARTLY, f"does not tell {unknown}") if unknown else (CardState.KNOWN, "")
    if health == MIG:
        state, reason = CardState.UNUSABLE, "is cut into MIG instances"
    card = Card(
        id=index,
        npu=index,
        chip=0,
        name=row["name"],
        health=health,
        hbm_used_mb=used,
        hbm_total_mb=total,
        temperature_c=_reading(found, line, row.get("temperature.gpu", "N/A"), "temperature.gpu"),
        power_w=_reading(found, line, row.get("power.draw", "N/A"), "power.draw"),
        state=state,
        reason=reason,
    )
    return _Gpu(row["uuid"], row.get("driver_version", NOT_STATED), card)


def _health(found: Source, line: Line, row: Mapping[str, str]) -> str:
    mig, errors = row.get("mig.mode.current", "[N/A]"), row.get("ecc.errors.uncorrected.volatile.total", "[N/A]")
    if mig not in ("Enabled", "Disabled") and not is_absent(mig):
        raise found.error(line, f"mig.mode.current is {mig!r} in", "Enabled, Disabled or [N/A]")
    if mig == "Enabled":
        return MIG
    bad = not is_absent(errors) and found.number(line, errors, "ecc errors") > 0
    return WARNING if bad else HEALTHY


def _with_processes(gpus: _Gpus, text: str) -> Listing:
    if text.strip() and all(NO_HANDLE.search(line) for line in text.splitlines() if line.strip()):
        silent = (partly(gpu.card, "does not tell its processes") for gpu in gpus.found)
        return Listing(tuple(silent), gpus.notes)
    uuids = {gpu.uuid: gpu.card for gpu in gpus.found if gpu.uuid}
    told = parse_processes(text, uuids, all_known=len(uuids) == len(gpus.found)) if text.strip() else Processes()
    cards = (
        partly(msgspec.structs.replace(gpu.card, processes=told.of(gpu.uuid)), told.doubt(gpu.uuid))
        for gpu in gpus.found
    )
    return Listing(tuple(cards), (*gpus.notes, *told.notes))


def _reading(found: Source, line: Line, cell: str, what: str) -> float | None:
    if is_absent(cell):
        return None
    return found.reading(line, re.sub(r"\s*[WC]$", "", cell), what)
