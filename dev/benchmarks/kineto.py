"""The cost of attributing big torch traces: generates them, runs the whole command, prints time and memory.

A trace is like that of a GPU rank with Python stacks: python_function, cpu_op, cuda_runtime, kernel and ac2g events
with their arguments. Beside each run stands its ratio to orjson parsing the same file in a fresh process of the same
round (``--orjson``: the Python that has it; it is no dependency of the project), and with several ranks the ratio to
one rank. Memory is that of all processes of the command together.

python dev/benchmarks/kineto.py --orjson /tmp/orjson/bin/python --ranks 1 --ranks 8
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
PARSE = "import sys, orjson; orjson.loads(open(sys.argv[1], 'rb').read())"
_KERNELS = (
    *("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>",) * 5,
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


def _event(head: str, ts: int, dur: int, args: str) -> str:
    at = f'"ts": {ts // 1000}.{ts % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}'
    return f'  {{\n    "ph": "X", {head},\n    {at},\n    "args": {{\n      {args}\n    }}\n  }}'


def _launch(number: int, clock: int, draw: random.Random) -> list[str]:
    host, name = '"pid": 51198, "tid": 51198', _KERNELS[number % len(_KERNELS)]
    stream, took = (20 if "nccl" in name else 7), draw.randint(20_000, 60_000)
    frames = [
        _event(
            f'"cat": "python_function", "name": "torch/nn/module_{depth}.py({1500 + depth}): _call_impl", {host}',
            clock + depth,
            60_000 - 2 * depth,
            f'"Python parent id": {number * 4 + depth}, "Python id": {number * 4 + depth + 1}, "Ev Idx": {number}',
        )
        for depth in range(4)
    ]
    operator = _event(
        f'"cat": "cpu_op", "name": "aten::{("linear", "addmm", "mul", "add")[number % 4]}", {host}',
        clock + 10,
        40_000,
        f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": '
        f'["c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Strides": [[5120, 1], [1, 5120], []], "Input Dims": '
        f'[[16384, 5120], [5120, 5120], []], "Ev Idx": {number}',
    )
    call = _event(
        f'"cat": "cuda_runtime", "name": "cudaLaunchKernel", {host}',
        clock + 20_000,
        9_000,
        f'"External id": {number},"cbid": 211, "correlation": {number}',
    )
    kernel = _event(
        f'"cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}',
        clock + 50_000,
        took,
        f'"External id": {number},"queued": 0, "device": 0, "context": 1,\n      "stream": {stream}, "correlation": '
        f'{number},\n      "registers per thread": 234, "shared memory": 73728,\n      "blocks per SM": 1.818182,\n'
        '      "warps per SM": 14.545455,\n      "grid": [48, 5, 1],\n      "block": [256, 1, 1],\n'
        '      "est. achieved occupancy %": 23',
    )
    flow = [
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {at // 1000}.{at % 1000:03d},\n'
        f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}'
        for phase, pid, tid, at, end in (
            ("s", 51198, 51198, clock + 20_000, ""),
            ("f", 0, stream, clock + 50_000, ', "bp": "e"'),
        )
    ]
    return [*frames, operator, call, kernel, *flow]


def write_trace(path: Path, rank: int, size: int) -> None:
    """Write one rank's trace of about ``size`` bytes: one annotated step."""
    draw, clock, number, written = random.Random(rank), 6_318_432_042_316, 0, 0
    begun = clock
    with path.open("w", encoding="ascii") as stream:
        stream.write(
            f'{{\n  "schemaVersion": 1,\n  "deviceProperties": [{{"id": 0, "name": "GPU"}}],\n  "distributedInfo": '
            f'{{"backend": "nccl", "rank": {rank}, "world_size": 8}},\n  "traceEvents": [\n'
        )
        while written < size:
            number += 1
            written += stream.write(",\n".join(_launch(number, clock, draw)) + ",\n")
            clock += 65_000
        head = '"cat": "user_annotation", "name": "ProfilerStep#1", "pid": 51198, "tid": 51198'
        stream.write(_event(head, begun, clock - begun + 1000, '"Ev Idx": 0') + '\n  ],\n  "traceName": "t"\n}\n')


def measured(*command: str) -> tuple[float, float, float]:
    """Run a command; return wall seconds, CPU seconds and the peak MB of it and its children together."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, _family_mb(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    ended.set()
    watcher.join()
    if code not in (0, 1):  # 1: with findings
        raise SystemExit(f"{command[1]} ended with exit code {code}")
    return wall, usage.ru_utime + usage.ru_stime, peak


def _family_mb(pid: int) -> float:
    """Proportional memory of a process and of its children, so that shared pages count once."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    own = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return own / 1024 + sum(map(_family_mb, children))


def main() -> None:
    """Generate, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orjson", required=True, metavar="PYTHON", help="a Python that can import orjson")
    parser.add_argument("--mb", type=int, default=218, help="size of a rank's trace")
    parser.add_argument("--ranks", type=int, action="append", help="ranks of a capture (default: 1)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; of each figure the median is printed")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in args.ranks or [1]:
            capture = Path(folder, str(ranks))
            capture.mkdir()
            for rank in range(ranks):
                write_trace(capture / f"rank{rank}.json", rank, args.mb * 1_000_000)
            one = str(capture / "rank0.json")
            attribute = (sys.executable, str(ROOT / "scripts" / "attribute.py"), "--layers", "40")
            commands = {
                "orjson, one rank": (args.orjson, "-c", PARSE, one),
                "attribute, one rank": (*attribute, "--profile-dir", one, "--out", f"{folder}/one.json"),
            }
            if ranks > 1:
                every = (*attribute, "--profile-dir", str(capture), "--out", f"{folder}/all.json")
                commands[f"attribute, {ranks} ranks"] = every
            seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
            for _ in range(args.repeats):
                for name, command in commands.items():
                    seen[name].append(measured(*command))
            for name, runs in seen.items():
                figures = []
                for base in list(seen)[:2]:
                    ratio = [
                        median(own[part] / ref[part] for own, ref in zip(runs, seen[base], strict=True))
                        for part in range(3)
                    ]
                    figures.append("{:5.2f} x wall {:5.2f} x CPU {:5.2f} x memory of {}".format(*ratio, base))
                wall, cpu, peak = (median(column) for column in zip(*runs, strict=True))
                print(f"{name:22} {wall:6.2f} s  CPU {cpu:6.2f} s {peak:6.0f} MB  " + "  ".join(figures), flush=True)


if __name__ == "__main__":
    main()
