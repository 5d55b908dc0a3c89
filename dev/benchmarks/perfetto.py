"""The cost of a trace for Perfetto: generates captures, exports each as a whole process, prints time, memory and size.

Each capture is one rank. ``in order``: kernels follow each other, as `attribution.py` writes them. ``overlapping``: on
one stream every kernel begins while the one before still runs, so that each needs a lane.

python dev/benchmarks/perfetto.py --rows 1000000
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from attribution import ROOT, timed, write_capture

HEADER = "Step Id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)"


def write_overlapping(path: Path, rows: int) -> None:
    """Write one rank's kernel table in which two kernels run at any time."""
    with path.open("w", encoding="ascii") as stream:
        stream.write(HEADER + "\n")
        stream.writelines(f"1,16,Add_{row % 997},Add,AI_VECTOR_CORE,{row * 40}.125,60.250\n" for row in range(rows))


def main() -> None:
    """Generate, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="rows of a capture (default: 1000000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs; of each figure the median is printed")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}" + (", NOT quiet" if load > 1 else ""))
    script = str(ROOT / "scripts" / "perfetto_export.py")
    with tempfile.TemporaryDirectory() as folder:
        for rows in args.rows or [1_000_000]:
            for kind, write in (("in order", write_capture), ("overlapping", write_overlapping)):
                table = Path(folder, "kernel_details.csv")
                write(table, rows)
                for suffix in ("json.gz", "json"):
                    out = Path(folder, f"trace.{suffix}")
                    command = (sys.executable, script, "--profile-dir", str(table), "--out", str(out))
                    runs = [timed(*command) for _ in range(args.repeats)]
                    if any(code for *_, code in runs):
                        raise SystemExit("the export failed")
                    wall, cpu, memory, _ = map(median, zip(*runs, strict=True))
                    print(
                        f"{rows} rows, {kind:11} {suffix:7} {wall:6.2f} s  CPU {cpu:6.2f} s  {memory:6.0f} MB  "
                        f"file {out.stat().st_size / 1e6:6.1f} MB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
