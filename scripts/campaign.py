"""Decide many random virtual hosts and compare each decision with the truth.

Draws N hosts (topology, link speeds, model, noise, ramp, drift, tenants, residue, order flips, silent no-ops, exposed
communication, offload), runs each through the same functions as the workflow under the full and the adaptive design,
and prints how many decisions were right, wrong, rightly or wrongly declined, false ``extrapolates``, and the card time.

    python scripts/campaign.py --hosts 500 --seed 7 --jobs 2
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from campaigns.hosts import draw
from campaigns.scoring import RIGHT, RIGHTLY_DECLINED, HostResult, run_host, table

from anchormatrix.cli.command import run
from anchormatrix.store.files import write_json


def one_host(seed: int, number: int) -> HostResult:
    """Draw and decide one host."""
    return run_host(draw(seed, number))


def main() -> int:
    """Run the campaign; exit 0 whatever the figures are: they are for the reader to judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100, metavar="N", help="hosts to draw (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="campaign seed; other seeds are other hosts (default 1)")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first host (default 0)")
    parser.add_argument("--list", action="store_true", help="also print every host that was not decided rightly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every host's result to FILE")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.hosts)
    work = partial(one_host, arguments.seed)
    if arguments.jobs > 1:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(work, numbers, chunksize=4))
    else:
        results = [work(number) for number in numbers]
    if arguments.list:
        for result in results:
            if any(kind not in (RIGHT, RIGHTLY_DECLINED) for kind in result.judgement) or any(
                result.false_extrapolates
            ):
                print(f"host {result.number}: {result.forms} forms, noise {result.noise_pct:.2f} %, "
                      f"margin {result.margin_pct:.2f} %", file=sys.stderr)  # fmt: skip
                for name, kind, text in zip(("full", "adaptive"), result.judgement, result.text, strict=True):
                    print(f"  {name}: {kind}; {text}", file=sys.stderr)
    print(table(results))
    if arguments.json:
        write_json(arguments.json, {"seed": arguments.seed, "hosts": [asdict(result) for result in results]})
    return 0


if __name__ == "__main__":
    run(main)
