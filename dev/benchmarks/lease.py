"""The time of taking and giving back cards, alone and with eight processes contending. Figure to reach: 20 ms local.

python benchmarks/lease.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings

ROOT = Path(__file__).resolve().parents[2]
CONTENDER = """
import random, sys
from anchormatrix.hosts.local import LocalHost
from anchormatrix.records.settings.things import HostSettings

host, draw = LocalHost(HostSettings("here", lease_dir=sys.argv[2])), random.Random(int(sys.argv[3]))
for _ in range(125):
    host.lease(draw.sample(range(8), draw.choice([2, 4, 8])), holder={"what": "benchmark"}, wait_s=120).release()
"""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        host = LocalHost(HostSettings("here", lease_dir=f"{folder}/leases"))
        spent_ms = []
        for _ in range(500):
            begin = time.perf_counter()
            host.lease(range(8), holder={"what": "benchmark"}, wait_s=0).release()
            spent_ms.append(1000 * (time.perf_counter() - begin))
        spent_ms.sort()
        print(f"acquire and release 8 cards: median {statistics.median(spent_ms):.2f} ms, worst {spent_ms[-1]:.2f} ms")
        begin = time.perf_counter()
        words = [sys.executable, "-c", CONTENDER, str(ROOT), f"{folder}/leases"]
        crowd = [subprocess.Popen([*words, str(seed)]) for seed in range(8)]
        codes = [one.wait() for one in crowd]
        print(
            f"1000 contended acquisitions by 8 processes: {time.perf_counter() - begin:.1f} s, exit codes {set(codes)}"
        )


if __name__ == "__main__":
    main()
