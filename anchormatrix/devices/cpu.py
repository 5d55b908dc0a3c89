"""A CPU as a host of cards: each card is a set of whole cores of its own, linked by shared caches and memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anchormatrix.devices.text import HEALTHY, Line, Source, source
from anchormatrix.errors import HostError
from anchormatrix.hosts.base import Host
from anchormatrix.records.host import SELF, Card, CardProcess, HostState, Topology

LSCPU = ("lscpu", "-p=CPU,CORE,SOCKET,NODE,CACHE")
NAME = ("sh", "-c", "uname -r; grep -m1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo")
SAMPLE_S = 0.5
BUSY_SHARE = 0.25
CORES_VARIABLE = "ANCHORMATRIX_CARD_CORES"
# Every thread's process, name, CPU time, memory and last CPU, twice; threads that end in between are no matter.
LOAD = (
    "sh",
    "-c",
    f"getconf CLK_TCK; getconf PAGESIZE; grep -s '' /proc/[0-9]*/task/*/stat; sleep {SAMPLE_S}; "
    "echo ====; grep -s '' /proc/[0-9]*/task/*/stat; true",
)

_STAT = re.compile(r"/proc/(\d+)/task/(\d+)/stat:\2 \((.*)\) \S (.+)")
_KERNEL_FLAG = 0x00200000


@dataclass(frozen=True)
class Cpu:
    """One hardware thread and where it sits; ``cache`` is the shared last-level cache, ``None`` when not reported."""

    id: int
    core: int
    socket: int
    node: int
    cache: int | None


@dataclass(frozen=True)
class _Thread:
    pid: int
    name: str
    ticks: int
    pages: int
    cpu: int


def parse_lscpu(text: str) -> tuple[Cpu, ...]:
    """Read ``lscpu -p``: columns are found by the header, the last cache level is the shared one.

    A host that reports no NUMA node is one node. Raises :class:`InputError` naming the command and the line.
    """
    found = source(text, "lscpu -p")
    comments = [line for line in found.lines if line.text.startswith("#")]
    rows = [line for line in found.lines if not line.text.startswith("#")]
    header = next((line for line in reversed(comments) if "CPU," in line.text), None)
    if header is None or not rows:
        raise found.error(None, "has no header or no CPU", "`# CPU,Core,Socket,Node,…` and a row per CPU")
    columns = header.text.lstrip("# ").split(",")
    if columns[:4] != ["CPU", "Core", "Socket", "Node"]:
        raise found.error(header, "is not the header of the CPUs", "CPU,Core,Socket,Node")
    cpus = tuple(_cpu(found, line) for line in rows)
    if len({cpu.id for cpu in cpus}) != len(cpus):
        raise found.error(None, "lists a CPU twice", "a row per CPU")
    return cpus


def core_sets(cpus: Sequence[Cpu], cards: int, cores_per_card: int) -> tuple[tuple[int, ...], ...]:
    """Give each card ``cores_per_card`` whole cores (all their hardware threads), those of one cache together.

    Raises :class:`HostError` when the host has fewer cores than that.
    """
    cores: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in cpus:
        cores.setdefault((cpu.socket, cpu.core), []).append(cpu)
    groups: dict[tuple[int, int], list[list[Cpu]]] = {}
    for threads in sorted(cores.values(), key=lambda threads: min(cpu.id for cpu in threads)):
        first = threads[0]
        groups.setdefault((first.node, -1 if first.cache is None else first.cache), []).append(threads)
    whole, left = [], []
    for _, group in sorted(groups.items()):
        full = len(group) // cores_per_card * cores_per_card
        whole += [group[i : i + cores_per_card] for i in range(0, full, cores_per_card)]
        left += group[full:]
    whole += [left[i : i + cores_per_card] for i in range(0, len(left), cores_per_card)]
    chosen = [block for block in whole if len(block) == cores_per_card][:cards]
    if len(chosen) < cards:
        raise HostError(
            f"{len(cores)} cores are too few for {cards} cards of {cores_per_card}",
            where="device.cards × device.cores_per_card",
            todo="ask for fewer cards or fewer cores",
        )
    return tuple(tuple(sorted(cpu.id for threads in block for cpu in threads)) for block in chosen)


def links_of(cpus: Sequence[Cpu], sets: Sequence[Sequence[int]]) -> Topology:
    """Cards whose cores all share one cache are linked by ``L3``, else of one memory node ``NUMA``, else ``SYS``."""
    by_id = {cpu.id: cpu for cpu in cpus}

    def link(a: Sequence[int], b: Sequence[int]) -> str:
        both = [by_id[cpu] for cpu in (*a, *b)]
        if len({(cpu.node, cpu.cache) for cpu in both}) == 1 and both[0].cache is not None:
            return "L3"
        return "NUMA" if len({cpu.node for cpu in both}) == 1 else "SYS"

    size = range(len(sets))
    matrix = tuple(tuple(SELF if i == j else link(sets[i], sets[j]) for j in size) for i in size)
    return Topology(tuple(size), matrix)


def parse_load(text: str, sample_s: float = SAMPLE_S) -> dict[int, tuple[CardProcess, ...]]:
    """Read two samples of all threads: by hardware thread, who used at least a quarter of it in between.

    ``memory_mb`` is the process's resident memory. The kernel's own threads are left out. Raises
    :class:`InputError`.
    """
    found = source(text, "grep '' /proc/*/task/*/stat")
    split = next((i for i, line in enumerate(found.lines) if line.text == "===="), None)
    if split is None or split < 2:
        raise found.error(None, "is cut off", "clock ticks, page size and two samples")
    tick_hz = found.number(found.lines[0], found.lines[0].text, "clock ticks") or 100
    page = found.number(found.lines[1], found.lines[1].text, "page size")
    before, after = _threads(found.lines[2:split]), _threads(found.lines[split + 1 :])
    busy: dict[int, list[CardProcess]] = {}
    for tid, thread in after.items():
        used = thread.ticks - before[tid].ticks if tid in before else 0
        if used / tick_hz >= BUSY_SHARE * sample_s:
            busy.setdefault(thread.cpu, []).append(
                CardProcess(thread.pid, thread.name, max(1, thread.pages * page // 2**20))
            )
    return {cpu: tuple(processes) for cpu, processes in busy.items()}


class CpuDevice:
    """Cards made of CPU cores; processes see them through ``ANCHORMATRIX_CARD_CORES`` (``0,1;2,3``, one set a card)."""

    kind = "cpu"

    def __init__(self, cards: int, cores_per_card: int) -> None:
        self._cards = cards
        self._cores_per_card = cores_per_card
        self._sets: tuple[tuple[int, ...], ...] = ()

    def read(self, host: Host, *, timeout_s: float) -> HostState:
        """Run ``lscpu`` and sample the load for half a second. Raises :class:`HostError` or :class:`InputError`."""
        cpus = parse_lscpu(host.run(LSCPU, timeout_s=timeout_s).stdout)
        sets = core_sets(cpus, self._cards, self._cores_per_card)
        kernel, name, total_mb = _described(host.run(NAME, timeout_s=timeout_s, check=False).stdout)
        load = parse_load(host.run(LOAD, timeout_s=timeout_s + SAMPLE_S).stdout)
        cards = tuple(_card(i, cores, load, name, total_mb // len(sets)) for i, cores in enumerate(sets))
        self._sets = sets
        return HostState(links_of(cpus, sets), cards, (("driver", kernel), ("tool", "lscpu")))

    def visible_env(self, cards: Sequence[int]) -> dict[str, str]:
        """The core sets of these cards, in this order. Needs an earlier :meth:`read`."""
        if not self._sets:
            raise HostError("the cores of the cards are not known", where="cpu device", expected="the host read first")
        return {CORES_VARIABLE: ";".join(",".join(map(str, self._sets[card])) for card in cards)}


def _card(card: int, cores: Sequence[int], load: dict[int, tuple[CardProcess, ...]], name: str, total_mb: int) -> Card:
    processes = {process.pid: process for cpu in cores for process in load.get(cpu, ())}
    return Card(
        id=card,
        npu=card,
        chip=0,
        name=name,
        health=HEALTHY,
        hbm_used_mb=min(total_mb, sum(process.memory_mb or 0 for process in processes.values())),
        hbm_total_mb=total_mb,
        processes=tuple(processes[pid] for pid in sorted(processes)),
    )


def _cpu(found: Source, line: Line) -> Cpu:
    cells = line.text.split(",")
    if len(cells) < 4:
        raise found.error(line, f"has {len(cells)} cells in", "at least 4 cells")
    cpu, core, socket = (found.number(line, cell, "an id") for cell in cells[:3])
    node = found.number(line, cells[3], "node") if cells[3] else 0
    # Caches come as further cells, or as one cell with colons; the last one given is the largest.
    caches = [cell for cell in re.split("[:,]", ",".join(cells[4:])) if cell]
    cache = found.number(line, caches[-1], "cache") if len(caches) >= 4 else None
    return Cpu(cpu, core, socket, node, cache)


def _threads(lines: Sequence[Line]) -> dict[int, _Thread]:
    """Threads by id; ``/proc`` lines that cannot be read belong to threads that ended while they were printed."""
    threads: dict[int, _Thread] = {}
    for line in lines:
        match = _STAT.fullmatch(line.text)
        fields = match[4].split() if match else []
        if match and len(fields) >= 36 and all(re.fullmatch(r"-?\d+", field) for field in fields):
            kernel = int(fields[5]) & _KERNEL_FLAG
            if not kernel:
                threads[int(match[2])] = _Thread(
                    pid=int(match[1]),
                    name=match[3],
                    ticks=int(fields[10]) + int(fields[11]),
                    pages=int(fields[20]),
                    cpu=int(fields[35]),
                )
    return threads


def _described(text: str) -> tuple[str, str, int]:
    """Kernel release, CPU model and memory in MB, as far as the host tells."""
    lines = text.splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
    memory = next((line.split()[1] for line in lines if re.fullmatch(r"MemTotal:\s+\d+ kB", line)), "0")
    return (lines[0].strip() if lines else "not stated"), model, int(memory) // 1024
