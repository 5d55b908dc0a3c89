"""Judge a contract: may the few-step ranking be used, and which form wins on the anchor tier?

Writes verdict.json: extrapolates, drift, order_flip, unstable or incomplete, with the reason and what to do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.judging import judging_parser, read_to_judge
from anchormatrix.decide.cells import read_cells
from anchormatrix.decide.verdict import judge
from anchormatrix.store.codec import write_record


def main() -> int:
    """Parse, judge, write."""
    args = _arguments()
    given = read_to_judge(args)
    stored = [timed.session.form for timed in given.sessions]
    verdict = judge(
        given.contract.id,
        given.contract.size,
        read_cells(args.cells or args.contract.with_name("cells.csv")),
        given.sessions,
        forms=tuple(dict.fromkeys([*given.forms, *stored])),
        design=given.design,
        limits=given.settings.verdict,
    )
    write_record(args.out or args.contract.with_name("verdict.json"), verdict)
    print(f"{given.contract.id}: {verdict.status}. {verdict.reason}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = judging_parser(__doc__)
    parser.add_argument("--cells", type=Path, help="cells.csv (default: beside the contract)")
    parser.add_argument("--out", type=Path, help="verdict.json (default: beside the contract)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
