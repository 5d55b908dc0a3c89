"""Make cells of a contract's sessions: median and dispersion of each form and tier, per window and over all windows.

Writes cells.csv. Only sessions that were measured and proven yield cells; a cell that may not be ranked says why.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.decide.adaptive_judging import to_judge
from anchormatrix.decide.cells import write_cells
from anchormatrix.decide.left_behind import planned_sessions
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.contract import StoredContract
from anchormatrix.store.codec import read_record
from anchormatrix.store.sessions import read_session


def main() -> int:
    """Parse, build, write."""
    args = _arguments()
    settings = load_settings(args.config)
    contract = read_record(args.contract, StoredContract)
    planned = required_run_plan(args.plan, args.contract.resolve().parent.parent).of(contract.id)
    paths = args.sessions or planned_sessions(args.contract.parent, planned)
    found = to_judge([read_session(path, contract.id) for path in paths], planned.forms, settings)
    write_cells(args.out or args.contract.with_name("cells.csv"), found.cells)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument(
        "--sessions",
        type=Path,
        nargs="*",
        help="session.json files (default: those beside the contract of the planned forms and windows)",
    )
    parser.add_argument("--out", type=Path, help="cells.csv (default: beside the contract)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
