"""Judge a contract: may the few-step ranking be used, and which form wins on the anchor tier?

Writes verdict.json: extrapolates, drift, order_flip, unstable or incomplete, with the reason and what to do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.decide.adaptive_judging import to_judge
from anchormatrix.decide.cells import read_cells
from anchormatrix.decide.left_behind import planned_sessions
from anchormatrix.decide.verdict import judge
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.contract import StoredContract
from anchormatrix.store.codec import read_record, write_record
from anchormatrix.store.sessions import read_session


def main() -> int:
    """Parse, judge, write."""
    args = _arguments()
    settings = load_settings(args.config)
    contract = read_record(args.contract, StoredContract)
    planned = required_run_plan(args.plan, args.contract.resolve().parent.parent).of(contract.id)
    paths = args.sessions or planned_sessions(args.contract.parent, planned)
    sessions = [read_session(path, contract.id) for path in paths]
    found = to_judge(sessions, [*planned.forms, *(timed.session.form for timed in sessions)], settings)
    verdict = judge(
        contract.id,
        contract.size,
        read_cells(args.cells or args.contract.with_name("cells.csv")),
        found.sessions,
        forms=found.forms,
        windows=len(found.windows),
        limits=settings.verdict,
    )
    write_record(args.out or args.contract.with_name("verdict.json"), verdict)
    print(f"{contract.id}: {verdict.status}. {verdict.reason}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument("--cells", type=Path, help="cells.csv (default: beside the contract)")
    parser.add_argument(
        "--sessions",
        type=Path,
        nargs="*",
        help="session.json files (default: those beside the contract of the planned forms and windows)",
    )
    parser.add_argument("--out", type=Path, help="verdict.json (default: beside the contract)")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
