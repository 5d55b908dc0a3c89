"""Isolated collective micro-benchmark, run in the engine's environment: one process per card, torch.distributed.

``python collective_bench.py ORDER`` where ORDER is a JSON object: ``collective``, ``groups`` (lists of device numbers
that run at once), ``sizes`` in bytes handed to one call by one rank, ``repeats``, ``device`` (cpu, cuda or npu) and
``backend``.
Prints one line per size, ``{"bytes": n, "times_us": [t, …]}``: each time is that of the slowest rank of all groups.
It needs nothing but torch and the standard library, so that its text can be sent to another host.
"""

# ruff: noqa: PLC0415, T201 - a program of its own: torch is imported in the ranks only, results go to stdout
from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_WARMUPS = 3


def _set_device(torch: Any, kind: str, index: int) -> tuple[Any, Callable[[], Any]]:
    """Bind the process to its card *before* the communicator exists: else every rank opens card 0's port."""
    if kind == "npu":
        import torch_npu

        torch_npu.npu.set_device(index)
        return torch.device(f"npu:{index}"), torch_npu.npu.synchronize
    if kind == "cuda":
        torch.cuda.set_device(index)
        return torch.device(f"cuda:{index}"), torch.cuda.synchronize
    torch.set_num_threads(1)
    return torch.device("cpu"), lambda: None


def _call(
    dist: Any, torch: Any, order: Any, group: Any, members: Sequence[int], rank: int, size: int, device: Any
) -> Callable[[], Any]:
    """Return a function that runs the collective once on tensors of ``size`` bytes per rank."""
    ranks, count = len(members), max(len(members), size // 2 // len(members) * len(members))
    mine = torch.ones(count, dtype=torch.float16, device=device)
    kind = order["collective"]
    if kind == "all_to_all":
        if order["backend"] == "gloo":  # gloo's all-to-all wants lists of equal parts
            parts, got = list(mine.chunk(ranks)), list(torch.empty_like(mine).chunk(ranks))
            return lambda: _exchange(dist, parts, got, group, members, rank)
        out = torch.empty_like(mine)
        return lambda: dist.all_to_all_single(out, mine, group=group)
    if kind == "all_gather":
        out = [torch.empty_like(mine) for _ in range(ranks)]
        return lambda: dist.all_gather(out, mine, group=group)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(mine, group=group)
    out, place = torch.empty_like(mine), members.index(rank)
    send_to, take_from = members[(place + 1) % ranks], members[(place - 1) % ranks]

    def pass_on() -> None:
        for work in (dist.isend(mine, send_to, group=group), dist.irecv(out, take_from, group=group)):
            work.wait()

    return pass_on


def _exchange(dist: Any, parts: Any, got: Any, group: Any, members: Sequence[int], rank: int) -> None:
    works = []
    for place, peer in enumerate(members):
        if peer == rank:
            got[place].copy_(parts[place])
            continue
        works.append(dist.isend(parts[place], peer, group=group))
        works.append(dist.irecv(got[place], peer, group=group))
    for work in works:
        work.wait()


def _rank(rank: int, order: Any, port: int) -> None:
    import torch
    import torch.distributed as dist

    flat = [index for group in order["groups"] for index in group]
    device, synchronize = _set_device(torch, order["device"], flat[rank])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(order["backend"], rank=rank, world_size=len(flat))
    first, mine, members = 0, None, list[int]()
    for group in order["groups"]:
        ranks = list(range(first, first + len(group)))
        handle = dist.new_group(ranks)
        if rank in ranks:
            mine, members = handle, ranks
        first += len(group)
    for size in order["sizes"]:
        call = _call(dist, torch, order, mine, members, rank, size, device)
        times = []
        for turn in range(_WARMUPS + order["repeats"]):
            synchronize()
            dist.barrier()
            begin = time.perf_counter()
            call()
            synchronize()
            took = torch.tensor([(time.perf_counter() - begin) * 1e6], device=device)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if turn >= _WARMUPS:
                times.append(float(took))
        if rank == 0:
            print(json.dumps({"bytes": size, "times_us": times}), flush=True)
    dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    """Run the order; exit 0 when every rank ended well."""
    order = json.loads(sys.argv[1])
    context, port = multiprocessing.get_context("fork"), _free_port()
    world = sum(len(group) for group in order["groups"])
    ranks = [context.Process(target=_rank, args=(rank, order, port)) for rank in range(world)]
    for process in ranks:
        process.start()
    try:
        while any(process.exitcode is None for process in ranks):
            if any(process.exitcode not in (None, 0) for process in ranks):
                break  # the others would wait for the lost rank for ever
            time.sleep(0.02)
    finally:
        for process in ranks:
            if process.exitcode is None:
                process.terminate()
            process.join()
    return 0 if all(process.exitcode == 0 for process in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
