"""Conclude: the winner of every card count with its conditions, and whether earlier decisions must be verified again.

Reads the contracts given and everything stored of them, writes decision.json, and appends what the decisions rest on to
decisions.jsonl in the results folder. With --check it measures and writes nothing: it tests the remembered decisions
against the configuration as it is now and exits with 1 when one must be verified again.

Examples:
  python scripts/rules/decide.py --config config/config.yaml --contracts results/c*-*/contract.json --out decision.json
  python scripts/rules/decide.py --config my-host.yaml --results results --check
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchormatrix.cli.command import FINDING, run
from anchormatrix.cli.plan import add_plan
from anchormatrix.config.merge import load_settings
from anchormatrix.decide.deciding import check_triggers, conclude, remember
from anchormatrix.errors import ConfigError
from anchormatrix.planning.run_plan import find_run_plan, required_run_plan
from anchormatrix.store.codec import write_record


def main() -> int:
    """Parse, conclude or check, write."""
    args = _arguments()
    settings = load_settings(args.config)
    if args.check:
        triggers = check_triggers(args.results, find_run_plan(args.plan, args.results), settings)
        for trigger in triggers:
            word = "FIRED" if trigger.fired else "quiet" if trigger.evaluated else "untested"
            print(f"{trigger.size} cards  {word}  {trigger.trigger}: {trigger.text}")
        return FINDING if any(trigger.fired for trigger in triggers) else 0
    if args.contracts is None:
        raise ConfigError("no contract is given", where="--contracts", expected="one or more contract.json, or --check")
    values, found = conclude(args.results, args.contracts, required_run_plan(args.plan, args.results), settings)
    write_record(args.out or args.results / "matrix_report" / "decision.json", values)
    remember(args.results, found)
    for item in found:
        print(item.decision.sentence)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contracts", type=Path, nargs="*", metavar="FILE", help="contract.json of every size")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder (default results)")
    parser.add_argument("--out", type=Path, help="decision.json (default: in the report's folder)")
    parser.add_argument(
        "--check", action="store_true", help="only test the remembered decisions against the configuration"
    )
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
