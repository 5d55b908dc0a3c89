"""NVIDIA cards: the text of ``nvidia-smi`` becomes cards and links, and processes are made to see some of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from anchormatrix.devices.nvidia_topology import parse_topology
from anchormatrix.devices.text import HEALTHY, WARNING, Line, Source, source
from anchormatrix.errors import InputError
from anchormatrix.hosts.base import Host
from anchormatrix.records.host import Card, CardProcess, HostState

__all__ = ["NvidiaDevice", "parse_gpus", "parse_processes", "parse_topology"]

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
PROCESSES = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv")

MIG = "MIG"
_NEEDED = ("index", "uuid", "name", "memory.used", "memory.total")
_PROCESS_COLUMNS = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")
_ABSENT = ("[N/A]", "N/A", "[Not Supported]", "[Not Found]", "[Insufficient Permissions]")
_BROKEN = ("[Unknown Error]", "ERR!", "[GPU is lost]", "[GPU requires reset]")
_UNIT = re.compile(r"^(.*?)\s*\[(MiB|W|%|C)\]$")


@dataclass(frozen=True)
class _Gpu:
    """One GPU and what ties it to other outputs."""

    uuid: str
    driver: str
    card: Card


def parse_gpus(text: str) -> tuple[Card, ...]:
    """Read ``nvidia-smi --query-gpu=… --format=csv`` with at least index, uuid, name and memory, ascending by index.

    Health is ``Fault`` where the tool reports an error in place of a value, ``MIG`` for a GPU cut into instances (it
    cannot be one card of a group), ``Warning`` after uncorrected memory errors, else ``OK``. Raises
    :class:`InputError` naming the command and the line.
    """
    return tuple(gpu.card for gpu in _gpus(source(text, "nvidia-smi --query-gpu")))


def parse_processes(text: str, uuids: Mapping[str, Card]) -> dict[str, tuple[CardProcess, ...]]:
    """Read ``nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv`` by GPU uuid.

    Where the tool cannot tell a process's memory (inside containers), all memory used on the card stands for it: an
    upper bound, never 0. Raises :class:`InputError`.
    """
    found = source(text, "nvidia-smi --query-compute-apps")
    columns = tuple(_column(cell) for cell in found.lines[0].text.split(","))
    if columns != _PROCESS_COLUMNS:
        raise found.error(found.lines[0], "is not the header of the processes", ", ".join(_PROCESS_COLUMNS))
    by_gpu: dict[str, list[CardProcess]] = {}
    for line in found.lines[1:]:
        cells = [cell.strip() for cell in line.text.split(",", 3)]  # a name may hold commas
        if len(cells) != 4:
            raise found.error(line, f"has {len(cells)} cells in", "4 cells")
        uuid, pid, memory, name = cells
        owners = _owners(uuid, uuids)
        if not owners:
            raise found.error(line, "names a GPU that is not listed:", "a uuid of --query-gpu")
        for owner in owners:
            used = uuids[owner].hbm_used_mb if memory in _ABSENT else _whole(found, line, memory, "used memory", "MiB")
            by_gpu.setdefault(owner, []).append(CardProcess(found.number(line, pid, "pid"), name, used))
    return {uuid: tuple(processes) for uuid, processes in by_gpu.items()}


def parse_health(text: str) -> tuple[Card, ...]:
    """Read a file that holds the output of ``--query-gpu`` and, after it, that of ``--query-compute-apps``.

    The second may be missing; then no processes are known. Raises :class:`InputError`.
    """
    gpus_text, header, rest = text.partition("gpu_uuid")
    return _with_processes(_gpus(source(gpus_text, "nvidia-smi --query-gpu")), header + rest)


class NvidiaDevice:
    """NVIDIA cards read with ``nvidia-smi``; processes see them through ``CUDA_VISIBLE_DEVICES``."""

    kind = "nvidia"

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run ``nvidia-smi`` three times. Raises :class:`HostError` or :class:`InputError`."""
        gpus = _gpus(source(host.run(GPUS, timeout_s=timeout_s).stdout, "nvidia-smi --query-gpu"))
        cards = _with_processes(gpus, host.run(PROCESSES, timeout_s=timeout_s).stdout)
        topology = parse_topology(host.run(TOPOLOGY, timeout_s=timeout_s).stdout)
        listed = tuple(card.id for card in cards)
        if listed != topology.cards:
            raise InputError(
                f"`nvidia-smi --query-gpu` lists cards {list(listed)}, `nvidia-smi topo -m` {list(topology.cards)}",
                expected="both to list the same cards",
                todo="a card may have dropped off the bus: look at both outputs on the host",
            )
        driver = gpus[0].driver
        return HostState(topology, cards, (("driver", driver), ("tool", driver)))

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """``CUDA_VISIBLE_DEVICES``, with the order of ``nvidia-smi`` (that of the PCI bus) made CUDA's too."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}


def _owners(uuid: str, cards: Mapping[str, Card]) -> list[str]:
    """The GPUs a listed uuid may mean: itself; for an instance its GPU, or, where it does not say, each that is cut."""
    if uuid in cards:
        return [uuid]
    named = [known for known in cards if uuid.startswith(f"MIG-{known}/")]
    return named or [known for known, card in cards.items() if uuid.startswith("MIG-") and card.health == MIG]


def _gpus(found: Source) -> tuple[_Gpu, ...]:
    columns = [_column(cell) for cell in found.lines[0].text.split(",")]
    missing = [name for name in _NEEDED if columns.count(name) != 1]
    if missing:
        raise found.error(found.lines[0], f"has no column {missing[0]} in", f"a header with {', '.join(_NEEDED)}")
    gpus: dict[int, _Gpu] = {}
    for line in found.lines[1:]:
        cells = [cell.strip() for cell in line.text.split(",")]
        if len(cells) != len(columns):
            raise found.error(line, f"has {len(cells)} cells in", f"{len(columns)} cells")
        gpu = _gpu(found, line, dict(zip(columns, cells, strict=True)))
        if gpu.card.id in gpus or gpu.uuid in {other.uuid for other in gpus.values()}:
            raise found.error(line, f"lists GPU {gpu.card.id} a second time:")
        gpus[gpu.card.id] = gpu
    if not gpus:
        raise found.error(None, "lists no GPU", "a row per GPU")
    return tuple(gpu for _, gpu in sorted(gpus.items()))


def _gpu(found: Source, line: Line, row: Mapping[str, str]) -> _Gpu:
    index = found.number(line, row["index"], "index")
    if not row["name"] or not re.fullmatch(r"GPU-[0-9a-f-]{8,40}", row["uuid"]):
        raise found.error(line, "has no name or uuid in", "GPU-xxxxxxxx-…")
    broken = any(value in _BROKEN for value in row.values())
    used, total = 0, 0
    if not broken:
        used = _whole(found, line, row["memory.used"], "memory.used", "MiB")
        total = _whole(found, line, row["memory.total"], "memory.total", "MiB")
        if not 0 < total >= used:
            raise found.error(line, f"uses {used} of {total} MiB in", "used memory within a total above 0")
    card = Card(
        id=index,
        npu=index,
        chip=0,
        name=row["name"],
        health="Fault" if broken else _health(found, line, row),
        hbm_used_mb=used,
        hbm_total_mb=total,
        temperature_c=_reading(found, line, row.get("temperature.gpu", "N/A"), "temperature.gpu"),
        power_w=_reading(found, line, row.get("power.draw", "N/A"), "power.draw"),
    )
    return _Gpu(row["uuid"], row.get("driver_version", "not stated"), card)


def _health(found: Source, line: Line, row: Mapping[str, str]) -> str:
    mig, errors = row.get("mig.mode.current", "[N/A]"), row.get("ecc.errors.uncorrected.volatile.total", "[N/A]")
    if mig not in ("Enabled", "Disabled", *_ABSENT):
        raise found.error(line, f"mig.mode.current is {mig!r} in", "Enabled, Disabled or [N/A]")
    if mig == "Enabled":
        return MIG
    bad = errors not in _ABSENT and found.number(line, errors, "ecc errors") > 0
    return WARNING if bad else HEALTHY


def _with_processes(gpus: Sequence[_Gpu], text: str) -> tuple[Card, ...]:
    by_uuid = parse_processes(text, {gpu.uuid: gpu.card for gpu in gpus}) if text.strip() else {}
    return tuple(msgspec.structs.replace(gpu.card, processes=by_uuid.get(gpu.uuid, ())) for gpu in gpus)


def _column(cell: str) -> str:
    clean = cell.strip()
    match = _UNIT.match(clean)
    return match[1] if match else clean


def _whole(found: Source, line: Line, cell: str, what: str, unit: str) -> int:
    return found.number(line, cell.removesuffix(unit).strip(), what)


def _reading(found: Source, line: Line, cell: str, what: str) -> float | None:
    if cell in _BROKEN or cell in _ABSENT:
        return None
    return found.reading(line, re.sub(r"\s*[WC]$", "", cell), what)
