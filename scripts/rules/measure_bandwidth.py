"""Sweep the bandwidth of a card group: how long its collectives take from small messages to large ones.

Runs the configured collective test, or a torch.distributed micro-benchmark in the engine's environment, for every
collective that the configured forms need on these cards: over the groups as placed, alone and with several
communicators at once. Writes bandwidth/<contract>.json.

Example:
  python scripts/rules/measure_bandwidth.py --config config/config.yaml --contract results/c4-…/contract.json \\
      --out results/bandwidth/c4-….json
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from anchormatrix.cli.command import run
from anchormatrix.cli.measuring import open_rig, read_orders, say
from anchormatrix.cli.plan import add_plan
from anchormatrix.measure.bandwidth.plan import plan_sweep
from anchormatrix.measure.bandwidth.sweep import run_sweep, sweep_argv
from anchormatrix.planning.configured import sweep_settings
from anchormatrix.planning.run_plan import required_run_plan
from anchormatrix.records.form import parse_form
from anchormatrix.store.codec import write_record


def main() -> int:
    """Parse, plan, sweep, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="configuration file (YAML or JSON)")
    add_plan(parser)
    parser.add_argument("--contract", type=Path, required=True, help="results/<contract>/contract.json")
    parser.add_argument("--dry-run", action="store_true", help="print the commands; start nothing")
    parser.add_argument("--out", type=Path, help="default: results/bandwidth/<contract>.json")
    args = parser.parse_args()
    settings, contract, results = read_orders(args)
    forms = [parse_form(name) for name in required_run_plan(args.plan, results).of(contract.id).forms]
    orders = plan_sweep(forms, settings.model, contract, **sweep_settings(settings))
    if args.dry_run:
        for order in orders:
            print(shlex.join(sweep_argv(order, settings)))
        return 0
    with open_rig(settings, contract) as rig:
        sweep = run_sweep(orders, contract, rig.host, rig.device, settings, say)
    write_record(args.out or results / "bandwidth" / f"{contract.id}.json", sweep)
    return 0


if __name__ == "__main__":
    run(main)
