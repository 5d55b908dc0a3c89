"""Evaluate the seven gates of one contract from what is stored of it.

Reads sessions, cells, verdict, attributions, bandwidth sweep and smoke below the results folder, and cells and
attributions of the contracts of fewer cards; writes gates.json: every gate of every form passed, failed or unknown with
its number and source, the bytes per layer in two columns, what stays unexplained, and the projections.

Example:
  python scripts/rules/evaluate_gates.py --config config/config.yaml --contract results/c4-…/contract.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.decide.assemble import judge_contract
from anchormatrix.decide.stored import read_measured, read_stored
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.contract import StoredContract
from anchormatrix.store.codec import read_record, write_record


def main() -> int:
    """Parse, read, evaluate, write; a table of the gates goes to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument(
        "--smaller",
        type=Path,
        nargs="*",
        default=(),
        metavar="FILE",
        help="contract.json of fewer cards, for the scaling",
    )
    parser.add_argument("--out", type=Path, help="gates.json (default: beside the contract)")
    args = parser.parse_args()
    settings, contract = load_settings(args.config), read_record(args.contract, StoredContract)
    results = args.contract.resolve().parent.parent
    plan = required_run_plan(args.plan, results)
    smaller = [read_measured(results, read_record(path, StoredContract), plan, settings) for path in args.smaller]
    judged = judge_contract(read_stored(results, contract, plan.of(contract.id), settings), smaller)
    write_record(args.out or args.contract.parent / "gates.json", judged)
    for gate in judged.gates:
        print(f"{gate.form:<24} {gate.gate} {gate.status:<8} {gate.text}")
    print(judged.decision.sentence)
    return 0


if __name__ == "__main__":
    run(main)
