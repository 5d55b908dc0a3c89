"""Make cells of a contract's sessions: median and dispersion of each form and tier, per window and over all windows.

Writes cells.csv. Only sessions that were measured and proven yield cells; a cell that may not be ranked says why.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.judging import judging_parser, read_to_judge
from anchormatrix.decide.cells import build_cells, write_cells


def main() -> int:
    """Parse, build, write."""
    args = _arguments()
    given = read_to_judge(args)
    matrix, limits = given.settings.matrix, given.settings.verdict
    cells = build_cells(given.sessions, repeats=matrix.repeats, dispersion_pct=limits.dispersion_pct)
    write_cells(args.out or args.contract.with_name("cells.csv"), cells)
    return 0


def _arguments() -> argparse.Namespace:
    parser = judging_parser(__doc__)
    parser.add_argument("--out", type=Path, help="cells.csv (default: beside the contract)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
