"""Isolated collective micro-benchmark, run in the engine's environment: one process per card, torch.distributed.

``python collective_bench.py ORDER`` where ORDER is a JSON object: ``collective``, ``ranks`` (one per visible device),
``communicators`` over the same ranks that run at once, ``sizes`` in bytes handed to one call by one rank, ``repeats``,
``device`` (cpu, cuda or npu) and ``backend``.
Prints one line per size, ``{"bytes": n, "times_us": [t, …]}``: each time is that of the slowest rank
for all communicators together.
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
from collections.abc import Callable
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
    cores = os.environ.get("ANCHORMATRIX_CARD_CORES", "").split(";")
    if index < len(cores) and cores[index]:
        os.sched_setaffinity(0, {int(core) for core in cores[index].split(",")})
    torch.set_num_threads(1)
    return torch.device("cpu"), lambda: None


def _call(dist: Any, torch: Any, order: Any, group: Any, size: int, device: Any) -> Callable[[], list[Any]]:
    """Return a function that starts the collective on tensors of ``size`` bytes per rank and returns its handles."""
    rank, ranks = dist.get_rank(), order["ranks"]
    count = max(ranks, size // 2 // ranks * ranks)
    mine = torch.ones(count, dtype=torch.float16, device=device)
    got, kind = torch.empty_like(mine), order["collective"]
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    if kind == "all_to_all" and order["backend"] == "gloo":  # which has no all-to-all of one tensor
        parts, places = list(mine.chunk(ranks)), list(got.chunk(ranks))
        peers = [peer for peer in range(ranks) if peer != rank]
        return lambda: [
            *(dist.isend(parts[peer], peer, group=group) for peer in peers),
            *(dist.irecv(places[peer], peer, group=group) for peer in peers),
        ]
    if kind == "all_to_all":
        return lambda: [dist.all_to_all_single(got, mine, group=group, async_op=True)]
    if kind == "all_gather":
        shards = [torch.empty_like(mine) for _ in range(ranks)]
        return lambda: [dist.all_gather(shards, mine, group=group, async_op=True)]
    if kind == "all_reduce":
        return lambda: [dist.all_reduce(mine, group=group, async_op=True)]
    return lambda: [dist.isend(mine, after, group=group), dist.irecv(got, before, group=group)]


def _rank(rank: int, order: Any, port: int) -> None:
    import torch
    import torch.distributed as dist

    device, synchronize = _set_device(torch, order["device"], rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(order["backend"], rank=rank, world_size=order["ranks"])
    groups = [dist.new_group(list(range(order["ranks"]))) for _ in range(order["communicators"])]
    for size in order["sizes"]:
        calls = [_call(dist, torch, order, group, size, device) for group in groups]
        times = []
        for turn in range(_WARMUPS + order["repeats"]):
            synchronize()
            dist.barrier()
            begin = time.perf_counter()
            for work in [work for call in calls for work in call()]:
                work.wait()
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
    ranks = [context.Process(target=_rank, args=(rank, order, port)) for rank in range(order["ranks"])]
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
