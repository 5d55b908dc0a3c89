"""Compare two runs cell by cell: engines, versions, hosts or card groups under the same workload.

Says what the runs differ in, refuses to compare where the step is another one (model, resolution, steps, precision),
and gives for every cell of both the medians, the difference with its interval over server starts, and which is faster.

Examples:
  python scripts/compare.py results-before results-after
  python scripts/compare.py results-vllm results-sglang --zone 2 --json > comparison.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.comparison import comparison_text
from anchormatrix.decide.comparing.cells import compare_runs
from anchormatrix.store.codec import record_text


def main() -> int:
    """Parse, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=Path, metavar="RESULTS_A", help="results folder of a run")
    parser.add_argument("b", type=Path, metavar="RESULTS_B", help="results folder of the run to hold against it")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.add_argument(
        "--zone", type=_percent, metavar="PCT", help="difference that counts as none (default: verdict.noise_floor_pct)"
    )
    args = parser.parse_args()
    found = compare_runs(args.a, args.b, zone_pct=args.zone)
    sys.stdout.write(record_text(found) if args.json else comparison_text(found))
    return 0


def _percent(text: str) -> float:
    value = float(text)
    if not 0 < value < 100:
        raise argparse.ArgumentTypeError("a percentage above 0 and below 100")
    return value


if __name__ == "__main__":
    run(main)
