"""Compare the outputs of a contract's sessions at the same seed: do all forms compute the same picture?

Reads session.json and output.bin of every session and writes outputs.json. A session whose picture is another one, or
no picture, is void from here on; what cannot be decoded is said to be not compared (exit code 0 in either case).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.judging import judging_parser, read_given
from anchormatrix.outputs.comparison import compare, computed, least_psnr_db
from anchormatrix.store.codec import write_record


def main() -> int:
    """Parse, compare, write."""
    args = _arguments()
    given = read_given(args)
    limits = given.settings.outputs
    outputs = compare(
        given.contract.id,
        computed(given.sessions, given.paths),
        limit_db=least_psnr_db(limits.psnr_db, given.settings.model.bytes_per_value),
        by_design=limits.by_design,
    )
    write_record(args.out or args.contract.with_name("outputs.json"), outputs)
    for one in outputs.sessions:
        print(f"{one.form} w{one.window}: {one.status}: {one.text}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = judging_parser(__doc__)
    parser.add_argument("--out", type=Path, help="outputs.json (default: beside the contract)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
