"""The cost of attributing a big capture: generates one, runs the commands as whole processes, prints time and memory.

Rows are 33 columns wide and about 221 bytes long, as the Ascend profiler writes them: 90 % compute kernels, 10 %
collectives whose names are all different. Beside each run stands its ratio to pyarrow reading the needed columns in a
fresh process of the same round, so that a loaded machine slows both; the median of the rounds is printed.

python dev/benchmarks/attribution.py --rows 1000000 --rows 4000000
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]

HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aic_mac_fp16_ratio,aic_mac_int8_ratio,aic_cube_fops,aic_vector_fops,aiv_time(us),"
    "aiv_total_cycles,aiv_vec_fp32_ratio,aiv_vec_fp16_ratio,aiv_vec_int32_ratio,aiv_vec_misc_ratio,aiv_cube_fops,"
    "aiv_vector_fops"
)
LAYERS = 40
# What a reader cannot do without: the columns that collectives are told by.
NEEDED = ("Step Id", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)")
READ = (
    f"import sys, pyarrow.csv as c; c.read_csv(sys.argv[1], convert_options=c.ConvertOptions(include_columns={NEEDED}))"
)
_NAMES = [
    *(("MatMulV2", "AI_CORE"),) * 4,
    ("FlashAttentionScore", "MIX_AIC"),
    *((name, "AI_VECTOR_CORE") for name in ("RmsNorm", "RotaryMul", "Add", "Gelu")),
]


def write_capture(path: Path, rows: int) -> None:
    """Write one rank's kernel table: layers of nine compute kernels and an all-to-all behind them, in one step."""
    draw = random.Random(1)
    clock = 1_736_413_971_558_972_912
    with path.open("w", encoding="ascii") as stream:
        stream.write(HEADER + "\n")
        for row in range(rows):
            place, took = row % 10, draw.randint(20_000, 60_000)
            at = f'"{clock // 1000}.{clock % 1000:03d}\t"'
            time_us = f"{took // 1000}.{took % 1000:03d}"
            if place == 9:
                head = f"1,4294967295,N/A,N/A,hcom_alltoall__445_{row // 10}_1,hcom_alltoall_,HCCL,{at},{time_us},0,0"
                stream.write(head + ",N/A" * 22 + "\n")
            else:
                name, core = _NAMES[place]
                stream.write(
                    f"1,4294967295,{row},16,{name}_{row % 997},{name},{core},{at},{time_us},2.113,48,0,"
                    '"""1,16384,5120;5120,5120""",DT_BF16;DT_BF16,ND;ND,"""1,16384,5120""",DT_BF16,ND,N/A,'
                    f"{time_us},4620018,0.87,0,92233,0,0,0,0,0.31,0,0.02,0,137176\n"
                )
            clock += took + draw.randint(0, 3000)


def timed(*command: str) -> tuple[float, float, float, int]:
    """Run a command; return wall seconds, CPU seconds, peak MB of the process, exit code."""
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return (
        time.perf_counter() - began,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        os.waitstatus_to_exitcode(status),
    )


def compare(rounds: int, reference: tuple[str, ...], commands: dict[str, tuple[str, ...]]) -> None:
    """Run the reference and every command in each round; print medians, and ratios to the reference of the round."""
    seen: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for _ in range(rounds):
        wall, cpu, memory, code = timed(*reference)
        if code:
            raise SystemExit(f"the reference ended with exit code {code}")
        seen.setdefault("pyarrow, needed columns", []).append((wall, cpu, memory, 1, 1))
        for name, command in commands.items():
            own_wall, own_cpu, own_memory, code = timed(*command)
            if code not in (0, 1):  # 1: with findings
                raise SystemExit(f"{name} ended with exit code {code}")
            seen.setdefault(name, []).append((own_wall, own_cpu, own_memory, own_wall / wall, own_cpu / cpu))
    for name, runs in seen.items():
        wall, cpu, memory, wall_ratio, cpu_ratio = map(median, zip(*runs, strict=True))
        print(
            f"{name:28} {wall:6.2f} s  CPU {cpu:6.2f} s  {memory:6.0f} MB  "
            f"{wall_ratio:5.2f} x wall  {cpu_ratio:5.2f} x CPU",
            flush=True,
        )


def main() -> None:
    """Generate, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="rows of a capture (default: 1000000)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; of each figure the median is printed")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{os.cpu_count()} cores, load {load:.1f}" + (", NOT quiet: only the ratios mean something" if load > 1 else "")
    )
    with tempfile.TemporaryDirectory() as folder:
        for rows in args.rows or [1_000_000]:
            capture = Path(folder, str(rows))
            capture.mkdir()
            write_capture(capture / "kernel_details.csv", rows)
            size = (capture / "kernel_details.csv").stat().st_size / 1e6
            print(f"\n{rows} rows, {size:.0f} MB")
            common = ("--profile-dir", str(capture), "--layers", str(LAYERS))
            commands = {
                "collective_attribution": common,
                "mask_bound_calc": (*common, "--chunks", "5"),
                "bubble_attribution": common,
                "attribute (all analyses)": (*common, "--out", str(capture / "attribution.json")),
            }
            table = str(capture / "kernel_details.csv")
            scripts = {
                name: (sys.executable, str(ROOT / "scripts" / f"{name.split()[0]}.py"), *options)
                for name, options in commands.items()
            }
            compare(args.repeats, (sys.executable, "-c", READ, table), scripts)
    print(f"\nown peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
